"""`lab`: a real server in virtual time. `live`: a real server in real time, for whole workers."""

from collections.abc import AsyncIterator, Iterator

import pytest

from rqretry.testing import Lab
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.contract.integration.harness import Lab as LiveLab
from tests.support.soundness import assert_sound


@pytest.fixture
def lab(lab_redis: Lab) -> Iterator[Lab]:
    """A lab whose data must agree with itself at the end."""
    yield lab_redis
    assert_sound(lab_redis.client.store, lab_redis.namespace)


@pytest.fixture(scope="session")
def live_server() -> Iterator[EmbeddedRedis]:
    """The server of tests that need workers as they are in production."""
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture
async def live(live_server: EmbeddedRedis) -> AsyncIterator[LiveLab]:
    """An empty server, and workers in this process."""
    live = LiveLab(live_server)
    live.redis.flushall()
    yield live
    await live.aclose()
    live.audit()
