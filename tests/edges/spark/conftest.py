"""One Spark session and one Redis for each test process; every test has a namespace of its own."""

import uuid
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from rqretry.spark import session
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.edges.spark.pipeline import QUICK, Pipeline


@pytest.fixture(scope="session")
def redis_server() -> Iterator[EmbeddedRedis]:
    """The server of this test process."""
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session of this test process: tasks are tried four times, as on a cluster."""
    running = session("tests", "local[2,4]", QUICK)
    yield running
    running.stop()


@pytest.fixture
def pipeline(redis_server: EmbeddedRedis, spark: SparkSession) -> Iterator[Pipeline]:
    """A fresh namespace, a client of it, and Spark."""
    with Pipeline(redis_server, spark, f"n{uuid.uuid4().hex[:12]}") as made:
        yield made
