"""One private Redis per test process; every test begins with an empty one and ends audited."""

from collections.abc import AsyncIterator, Iterator

import pytest

from rqretry.embedded import EmbeddedRedis
from tests.integration.harness import Lab


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
