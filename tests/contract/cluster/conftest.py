"""A cluster of three primaries, of each server."""

from collections.abc import AsyncIterator, Iterator

import pytest
import redis

from tests.conftest import program
from tests.contract.integration.harness import Lab
from tests.support.fleets import Cluster


class ClusterLab(Lab):
    """A lab whose server is a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.url = cluster.url
        self.redis = redis.RedisCluster("127.0.0.1", cluster.servers[0].port, protocol=2)
        self._apps, self._clients = [], []


@pytest.fixture(scope="session", params=["redis-7"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three primaries."""
    with Cluster(3, binary=program(request.param).path) as cluster:
        yield cluster


@pytest.fixture
async def lab(cluster: Cluster) -> AsyncIterator[ClusterLab]:
    """An empty cluster; everything in it agrees with itself at the end."""
    cluster.flush()
    lab = ClusterLab(cluster)
    yield lab
    await lab.aclose()
    lab.audit()
