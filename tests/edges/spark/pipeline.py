"""What the Spark tests share: a namespace, reads and writes of it, and a worker's verbs by hand."""

from pathlib import Path
from typing import Any, Self

import redis
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from rqretry import Client
from rqretry.testing.embedded_redis import EmbeddedRedis

QUICK = {
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
"""Settings of a session that lives for tests."""


class Pipeline:
    """One namespace, as a test sees it."""

    def __init__(self, server: EmbeddedRedis, spark: SparkSession, namespace: str) -> None:
        self.server, self.spark, self.namespace = server, spark, namespace
        self.url = server.url
        self.client = Client(self.url, namespace=namespace)
        self.redis: Any = redis.Redis(unix_socket_path=str(server.socket_path), protocol=2)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.redis.close()

    def options(self, topic: str, **more: Any) -> dict[str, str]:
        given = {"url": self.url, "namespace": self.namespace, "topic": topic, **more}
        return {name: str(value) for name, value in given.items()}

    def read(self, topic: str, **more: Any) -> DataFrame:
        """A batch read."""
        return self.spark.read.format("rqretry").options(**self.options(topic, **more)).load()

    def stream(self, topic: str, **more: Any) -> DataFrame:
        """A streaming read."""
        options = self.options(topic, **more)
        return self.spark.readStream.format("rqretry").options(**options).load()

    def write(self, rows: DataFrame, topic: str, **more: Any) -> None:
        """A batch write."""
        options = self.options(topic, **more)
        rows.write.format("rqretry").options(**options).mode("append").save()

    def publishing(self, rows: DataFrame, topic: str, checkpoint: Path) -> DataStreamWriter:
        """A streaming write of all that is available, not yet started."""
        writer = rows.writeStream.format("rqretry").options(**self.options(topic))
        return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)

    def bodies(self, topic: str) -> list[Any]:
        """The bodies that wait for the topic's first group, partition by partition, in order."""
        group = self.client.simple_consumer(topic, group="reader", create_group=True)
        found: list[Any] = []
        while True:
            messages = group.receive(max_messages=32, invisible_duration=60, wait=0)
            if not messages:
                return found
            found += [message.body for message in messages]

    def stored(self, topic: str) -> int:
        """How many messages a topic holds."""
        keys = self.redis.scan_iter(f"rqretry:{self.namespace}:{{{topic}:*}}:bodies")
        return sum(int(self.redis.hlen(key)) for key in keys)

    def events(self, topic: str, number: int = 0) -> str:
        """The key of a partition's history."""
        return f"rqretry:{self.namespace}:{{{topic}:{number}}}:events"

    def meta(self, topic: str, number: int = 0) -> str:
        """The key of a partition's meta."""
        return f"rqretry:{self.namespace}:{{{topic}:{number}}}:meta"


def finished(query: StreamingQuery) -> StreamingQuery:
    """A query that has come to its end by itself."""
    assert query.awaitTermination(90)
    return query
