"""One Spark session and one Redis for each test process; every test has a namespace of its own."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rqretry.embedded import EmbeddedRedis
from rqretry.spark import session
from tests.spark.pipeline import Pipeline


@pytest.fixture(scope="session")
def redis_server() -> Iterator[EmbeddedRedis]:
    """The server of this test process."""
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session of this test process: tasks are tried four times, as on a cluster."""
    settings: dict[str, Any] = {
        # Code that runs once is not worth a good compiler, nor small heaps a parallel collector,
        # and a plan that runs once is not worth Java code of its own.
        "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing"
            ".FileSystemBasedCheckpointFileManager"
        ),
    }
    running = session("tests", "local[2,4]", settings)
    yield running
    running.stop()


@pytest.fixture
def pipeline(redis_server: EmbeddedRedis, spark: SparkSession) -> Iterator[Pipeline]:
    """A fresh namespace, a client of it, and Spark."""
    with Pipeline(redis_server, spark, f"n{uuid.uuid4().hex[:12]}") as made:
        yield made
