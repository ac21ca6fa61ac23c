"""The operator's verbs on a real server; every test begins with an empty one and ends audited."""

from collections.abc import Iterator

import pytest
import redis

from rqretry import Client
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.contract.admin.bench import Bench
from tests.support.soundness import assert_sound

NAMESPACE = "test"


@pytest.fixture(scope="session")
def redis_server() -> Iterator[EmbeddedRedis]:
    """The server of this test process."""
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture
def bench(redis_server: EmbeddedRedis) -> Iterator[Bench]:
    """An empty server and a client; at the end everything must be sound."""
    with (
        redis.Redis(unix_socket_path=str(redis_server.socket_path), protocol=2) as raw,
        Client(redis_server.url, namespace=NAMESPACE) as client,
    ):
        raw.flushall()
        yield Bench(client, raw, redis_server.url)
        assert_sound(client.store, NAMESPACE)
