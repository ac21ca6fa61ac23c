"""One private Redis per test process; every test begins with an empty one and ends audited."""

from collections.abc import AsyncIterator, Iterator

import pytest
import redis

from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.contract.integration.harness import Lab


@pytest.fixture(scope="session")
def redis_server() -> Iterator[EmbeddedRedis]:
    """The server of this test process."""
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture
async def lab(redis_server: EmbeddedRedis) -> AsyncIterator[Lab]:
    """An empty server and what tests do with it."""
    lab = Lab(redis_server)
    lab.redis.flushall()
    yield lab
    await lab.aclose()
    lab.audit()


@pytest.fixture
def lab_url(redis_server: EmbeddedRedis) -> str:
    """The URL of the emptied server, for tests that run event loops of their own."""
    with redis.Redis(unix_socket_path=str(redis_server.socket_path)) as client:
        client.flushall()
    return redis_server.url
