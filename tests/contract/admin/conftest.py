"""The operator's verbs on each server; every test begins with an empty one and ends audited."""

from collections.abc import Iterator

import pytest
import redis

from rqretry import Client
from rqretry.core.parts import parts_of
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.conftest import ServerOf
from tests.contract.admin.bench import Bench
from tests.support.servers import SERVERS
from tests.support.soundness import assert_sound

NAMESPACE = "test"


@pytest.fixture(scope="session", params=list(SERVERS))
def redis_server(request: pytest.FixtureRequest, server_of: ServerOf) -> EmbeddedRedis:
    """Each server."""
    return server_of(request.param)


@pytest.fixture
def bench(redis_server: EmbeddedRedis) -> Iterator[Bench]:
    """An empty server and a client; at the end everything must be sound."""
    with (
        redis.Redis(unix_socket_path=str(redis_server.socket_path), protocol=2) as raw,
        Client(redis_server.url, namespace=NAMESPACE) as client,
    ):
        raw.flushall()
        yield Bench(client, raw, redis_server.url)
        assert_sound(parts_of(client).store, NAMESPACE)
