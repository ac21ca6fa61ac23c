"""A primary, a replica and three Sentinels with passwords, for the whole test process."""

from collections.abc import AsyncIterator, Iterator

import pytest
import redis

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


@pytest.fixture(scope="session")
def fleet() -> Iterator[SentinelFleet]:
    """A primary, a replica and three Sentinels."""
    with SentinelFleet(password=PASSWORD, sentinel_password=SENTINEL_PASSWORD) as fleet:
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
