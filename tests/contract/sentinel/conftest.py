"""A primary, a replica and three Sentinels with passwords, of each server."""

from collections.abc import AsyncIterator, Iterator

import pytest
import redis

from tests.conftest import program
from tests.contract.integration.harness import Lab
from tests.support.fleets import SentinelFleet

PASSWORD, SENTINEL_PASSWORD = "server-secret", "sentinel-secret"


class SentinelLab(Lab):
    """A lab whose server is the one that Sentinels name."""

    def __init__(self, fleet: SentinelFleet) -> None:
        self.fleet = fleet
        self.url = fleet.url
        self.redis = redis.Redis(port=fleet.primary.port, password=PASSWORD, protocol=2)
        self._apps, self._clients = [], []


@pytest.fixture(scope="session", params=["redis-7"])
def fleet(request: pytest.FixtureRequest) -> Iterator[SentinelFleet]:
    """A primary, a replica and three Sentinels."""
    binary = program(request.param).path
    with SentinelFleet(
        binary=binary, password=PASSWORD, sentinel_password=SENTINEL_PASSWORD
    ) as fleet:
        yield fleet


@pytest.fixture
async def lab(fleet: SentinelFleet) -> AsyncIterator[SentinelLab]:
    """An empty primary; everything in it agrees with itself at the end."""
    fleet.settled()
    fleet.flush()
    lab = SentinelLab(fleet)
    yield lab
    await lab.aclose()
    lab.audit()
