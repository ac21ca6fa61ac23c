"""On each server; every test begins with an empty one and ends audited."""

from collections.abc import AsyncIterator

import pytest
import redis

from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.conftest import ServerOf
from tests.contract.integration.harness import Lab
from tests.support.servers import SERVERS


@pytest.fixture(scope="session", params=list(SERVERS))
def redis_server(request: pytest.FixtureRequest, server_of: ServerOf) -> EmbeddedRedis:
    """Each server."""
    return server_of(request.param)


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
