"""On each server. `lab`: in virtual time; `live`: in real time, for whole workers."""

from collections.abc import AsyncIterator, Iterator

import pytest

from rqretry.core.parts import parts_of
from rqretry.testing import Lab
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.conftest import ServerOf
from tests.contract.integration.harness import Lab as LiveLab
from tests.support.servers import SERVERS
from tests.support.soundness import assert_sound


@pytest.fixture(scope="session", params=list(SERVERS))
def redis_server(request: pytest.FixtureRequest, server_of: ServerOf) -> EmbeddedRedis:
    """Each server."""
    return server_of(request.param)


@pytest.fixture
def lab(redis_server: EmbeddedRedis) -> Iterator[Lab]:
    """A lab whose data must agree with itself at the end."""
    with Lab(server=redis_server) as lab:
        yield lab
        assert_sound(parts_of(lab.client).store, lab.namespace)


@pytest.fixture
async def live(redis_server: EmbeddedRedis) -> AsyncIterator[LiveLab]:
    """An empty server, and workers in this process."""
    live = LiveLab(redis_server)
    live.redis.flushall()
    yield live
    await live.aclose()
    live.audit()
