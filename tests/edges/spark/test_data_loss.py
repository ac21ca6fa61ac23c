"""History that is gone before it was read is noticed, whatever took it away; without a JVM.

Readers are driven as Spark does it: offsets go through JSON, and tasks read what was planned.
"""

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from pyspark.sql.streaming.datasource import ReadAllAvailable

from rqretry import Client
from rqretry.spark import DataLoss
from rqretry.spark.source import RqretryDataSource
from rqretry.testing.embedded_redis import EmbeddedRedis

EARLIEST = {"startingOffsets": "earliest"}


class Query:
    """Reads of one namespace; a stream continues where it was."""

    def __init__(self, server: EmbeddedRedis) -> None:
        self.namespace = f"n{uuid.uuid4().hex[:12]}"
        self.url = server.url
        self.client = Client(self.url, namespace=self.namespace)
        self.redis: Any = redis.Redis(unix_socket_path=str(server.socket_path), protocol=2)
        self.offsets: Any = None

    def publish(self, count: int, topic: str = "t") -> None:
        """So many entries of the history."""
        for number in range(count):
            self.client.publish(topic, number)

    def key(self, name: str, topic: str = "t") -> str:
        return f"rqretry:{self.namespace}:{{{topic}:0}}:{name}"

    def stored(self) -> list[bytes]:
        """All that the server has of the namespace."""
        return list(self.redis.scan_iter(f"rqretry:{self.namespace}:*"))

    def stream(self, **options: str) -> int:
        """How many events a batch of a streaming query brings."""
        source = self._source(EARLIEST | options)
        reader: Any = source.streamReader(source.schema())
        start = self.offsets or json.loads(json.dumps(reader.initialOffset()))
        end = json.loads(json.dumps(reader.latestOffset(start, ReadAllAvailable())))
        found = self._rows(reader, reader.partitions(start, end))
        self.offsets = end
        return found

    def batch(self, **options: str) -> int:
        """How many events a batch read brings."""
        source = self._source(options)
        reader: Any = source.reader(source.schema())
        return self._rows(reader, reader.partitions())

    def _source(self, options: dict[str, str]) -> RqretryDataSource:
        where = {"url": self.url, "namespace": self.namespace, "topic": "*"}
        return RqretryDataSource({**where, **options})

    def _rows(self, reader: Any, parts: Any) -> int:
        return sum(batch.num_rows for part in parts for batch in reader.read(part))


@pytest.fixture
def query(redis_server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch) -> Iterator[Query]:
    """A namespace of its own."""
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")  # set where an error is raised
    made = Query(redis_server)
    yield made
    made.client.close()
    made.redis.close()


@pytest.mark.parametrize(
    ("removed", "sentence"),
    [
        (slice(0, 45), "lacks 45 entries before "),
        (slice(7, 12), "lacks 5 entries before "),
        (slice(50, 60), "lacks its last 10 entries before number 61"),
    ],
    ids=["first", "middle", "last"],
)
@pytest.mark.parametrize("how", ["stream", "batch"])
def test_entries_that_were_removed_by_hand_are_data_loss(
    query: Query, caplog: pytest.LogCaptureFixture, how: str, removed: slice, sentence: str
) -> None:
    query.publish(60)
    names = [name for name, _ in query.redis.xrange(query.key("events"))]
    query.redis.xdel(query.key("events"), *names[removed])
    read = getattr(query, how)
    with pytest.raises(DataLoss, match=sentence):
        read()
    assert read(failOnDataLoss="false") == 60 - len(names[removed])
    assert sentence in caplog.text


def test_a_new_topic_that_was_trimmed_before_its_first_read_is_data_loss(query: Query) -> None:
    query.publish(1, "a")
    assert query.stream() == 1
    query.publish(1, "b")
    query.redis.hset(query.key("meta", "b"), "limit", 500)
    query.publish(200, "b")
    kept = query.redis.xlen(query.key("events", "b"))
    with pytest.raises(DataLoss) as caught:
        query.stream()
    assert f"({201 - kept} entries)" in str(caught.value)
    assert "rqretry topic set b --max-history-bytes" in str(caught.value)
    assert query.stream(failOnDataLoss="false") == kept


@pytest.mark.parametrize("how", ["deleted", "emptied"])
@pytest.mark.parametrize("read", [100, 0])
def test_a_history_that_was_made_anew_is_data_loss(query: Query, how: str, read: int) -> None:
    query.client.admin.create_topic("t")
    query.publish(read)
    assert query.stream() == read
    query.publish(100 - read)
    if how == "deleted":
        query.client.admin.delete_topic("t")
    else:
        query.redis.delete(*query.stored())
    with Client(query.url, namespace=query.namespace) as client:
        client.admin.create_topic("t")
        client.publish_many("t", range(17))
    with pytest.raises(DataLoss, match="topic 't', partition 0, was made anew with 1 entries"):
        query.stream()
    assert query.stream(failOnDataLoss="false") == 17
    assert query.stream() == 0


@pytest.mark.parametrize("read_before", [10, 7], ids=["all had been read", "some was unread"])
def test_a_failover_to_a_replica_that_lacks_what_was_read_is_data_loss(
    query: Query, caplog: pytest.LogCaptureFixture, read_before: int
) -> None:
    query.publish(6)
    replica = {key: query.redis.dump(key) for key in query.stored()}
    query.publish(read_before - 6)
    assert query.stream() == read_before
    query.publish(10 - read_before)
    query.redis.delete(*query.stored())
    for key, value in replica.items():
        query.redis.restore(key, 0, value, replace=True)
    query.publish(7)
    assert query.redis.xlen(query.key("events")) == 13
    with pytest.raises(DataLoss, match="the server has older data"):
        query.stream()
    assert query.stream(failOnDataLoss="false") == 7
    assert "was continued from older data" in caplog.text


def test_what_was_read_and_trimmed_after_that_is_no_loss(query: Query) -> None:
    query.publish(5)
    assert query.stream() == 5
    query.redis.hset(query.key("meta"), "limit", 1)
    query.publish(1)
    assert query.stream() == 1
    assert query.batch() == 1
