"""Streaming reads of the history: offsets, admission, a stop at "now", and data loss."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from tests.edges.spark.pipeline import Pipeline, finished

pytestmark = [pytest.mark.campaign, pytest.mark.spark, pytest.mark.timeout(400)]


class Run:
    """A query that collects what each batch brought, under one checkpoint."""

    def __init__(self, pipeline: Pipeline, checkpoint: Path, **options: Any) -> None:
        self.pipeline, self.checkpoint, self.options = pipeline, checkpoint, options
        self.batches: list[list[str]] = []

    def __call__(self, topic: str = "t") -> StreamingQuery:
        def take(rows: DataFrame, _number: int) -> None:
            found = rows.select("partition", "offset").collect()
            self.batches.append([f"{row.partition}:{row.offset}" for row in found])

        rows = self.pipeline.stream(topic, **self.options)
        writer = rows.writeStream.foreachBatch(take).trigger(availableNow=True)
        return finished(writer.option("checkpointLocation", str(self.checkpoint)).start())

    @property
    def rows(self) -> list[str]:
        return [row for batch in self.batches for row in batch]


def test_what_is_new_is_read_once_over_restarts_and_new_partitions(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    pipeline.client.admin.create_topic("t", 2)
    run = Run(pipeline, tmp_path, startingOffsets="earliest")
    expected = 0
    for _ in range(3):
        pipeline.client.publish_many("t", list(range(20)))
        expected += 20
        run()
        assert len(run.rows) == len(set(run.rows)) == expected
    run()
    assert len(run.rows) == expected
    log = (tmp_path / "offsets" / "2").read_text().splitlines()
    offsets = json.loads(log[-1])
    assert set(offsets["t"]) == {"0", "1"}
    assert offsets["@"] == {"namespace": pipeline.namespace}


def test_a_new_query_begins_with_what_comes_next_unless_reported(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    pipeline.client.publish_many("t", [1, 2])
    run = Run(pipeline, tmp_path / "latest")
    run()
    pipeline.client.publish("t", 3)
    run()
    assert len(run.rows) == 1

    middle = pipeline.read("t").orderBy("offset").collect()[1].offset
    start = json.dumps({"t": {"0": middle}})
    named = Run(pipeline, tmp_path / "named", startingOffsets=start)
    named()
    assert len(named.rows) == 2


def test_a_batch_is_at_most_as_large_as_reported_and_cuts_entries_exactly(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    pipeline.client.admin.create_topic("t", 2)
    pipeline.client.publish_many("t", list(range(100)))
    for n in range(5):
        pipeline.client.publish("t", n)
    run = Run(pipeline, tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger=40, fetchSize=3)
    run()
    assert [len(batch) for batch in run.batches] == [40, 40, 25]
    assert len(set(run.rows)) == 105


def test_a_replayed_batch_has_the_same_rows(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.client.publish_many("t", list(range(30)))
    run = Run(pipeline, tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger=7)
    run()
    first = run.batches[-1]
    last = max(int(path.name) for path in (tmp_path / "commits").iterdir() if path.name.isdecimal())
    (tmp_path / "commits" / str(last)).unlink()
    pipeline.client.publish("t", "later")
    run.batches.clear()
    run()
    assert run.batches[0] == first
    assert [len(batch) for batch in run.batches] == [2, 1]


def test_a_topic_that_is_new_is_read_from_its_beginning(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.client.publish("a", 1)
    run = Run(pipeline, tmp_path, startingOffsets="earliest")
    run("*")
    pipeline.client.publish_many("b", [1, 2])
    run("*")
    assert len(run.rows) == 3


def test_history_that_was_trimmed_before_it_was_read_ends_the_query(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    pipeline.client.publish("t", 0)
    run = Run(pipeline, tmp_path, startingOffsets="earliest")
    run()
    pipeline.redis.hset(pipeline.meta("t"), "limit", 1)
    for n in range(3):
        pipeline.client.publish("t", n)
    with pytest.raises(
        PySparkException, match=r"was trimmed up to .* before it was read"
    ) as caught:
        run()
    assert "failOnDataLoss" in str(caught.value)

    run.options["failOnDataLoss"] = "false"
    run()
    assert len(run.rows) == 2


def test_a_server_that_lost_its_data_ends_the_query(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.client.publish_many("t", [1, 2])
    run = Run(pipeline, tmp_path, startingOffsets="earliest")
    run()
    pipeline.redis.delete(pipeline.events("t"), pipeline.meta("t"))
    with pytest.raises(PySparkException, match="the server has lost data"):
        run()


def test_a_checkpoint_of_other_topics_or_of_another_namespace_is_refused(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    pipeline.client.publish("t", 1)
    pipeline.client.publish("u", 1)
    run = Run(pipeline, tmp_path, startingOffsets="earliest")
    run()
    with pytest.raises(PySparkException, match="topic 't' is in the checkpoint"):
        run("u")
    run.options["namespace"] = pipeline.namespace + "x"
    with pytest.raises(PySparkException, match="this checkpoint is of namespace"):
        run("*")


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"kind": "messages"}, "kind 'messages' cannot be read as a stream"),
        ({"url": "redis://:s3cret@127.0.0.1:1"}, "Redis at 127.0.0.1:1 is unreachable"),
    ],
)
def test_a_wrong_option_of_a_stream_is_one_sentence(
    pipeline: Pipeline, tmp_path: Path, options: dict[str, str], shown: str
) -> None:
    pipeline.client.publish("t", 1)
    with pytest.raises(PySparkException) as caught:
        Run(pipeline, tmp_path, **options)()
    text = str(caught.value)
    assert shown in text
    assert "s3cret" not in text
