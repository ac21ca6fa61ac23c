"""Batch reads: the history's columns, offsets and filters; dead letters; stored messages."""

import json
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as fn

from rqretry import App, DeadLetter
from rqretry.core.parts import parts_of
from rqretry.testing import Lab
from tests.edges.spark.pipeline import Pipeline

pytestmark = [pytest.mark.campaign, pytest.mark.spark, pytest.mark.timeout(400)]

COLUMNS = [
    "topic",
    "partition",
    "offset",
    "event",
    "event_time",
    "message_id",
    "group",
    "attempt",
    "worker",
    "outcome",
    "error_type",
    "error_message",
    "fingerprint",
    "level",
    "due_time",
    "trace_id",
    "tag",
    "keys",
    "message_group",
    "entry",
    "buffer_seconds",
    "handler_seconds",
]


def as_dicts(rows: Any) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in rows]


def test_the_history_has_the_columns_of_the_contract(pipeline: Pipeline) -> None:
    pipeline.client.admin.create_topic("t", 1)
    assert pipeline.read("t").columns == COLUMNS
    assert pipeline.read("t").count() == 0


def test_failures_are_read_with_error_level_and_due_time(
    pipeline: Pipeline, lab_redis: Lab
) -> None:
    lab, app = lab_redis, App()

    @app.consumer("t", group="g", max_retries=1)
    def fail(body: dict[str, int]) -> None:
        if body["n"] == 1:
            raise DeadLetter("never")
        raise ValueError("bad\nvalue")

    lab.app(app)
    ids = [lab.publish("t", {"n": n}) for n in range(2)]
    lab.advance("1h")

    namespace = parts_of(lab.client).settings.namespace
    options = {"url": lab.url, "namespace": namespace, "topic": "t"}
    df = pipeline.spark.read.format("rqretry").options(**options).load()
    fails = as_dicts(df.where("event = 'fail'").orderBy("offset").collect())
    of_first = [r for r in fails if r["message_id"] == ids[0]]
    assert [(r["attempt"], r["outcome"], r["level"]) for r in of_first] == [
        (1, "waiting_retry", 3),
        (2, "dead", None),
    ]
    assert (of_first[0]["due_time"] - of_first[0]["event_time"]).total_seconds() == 10
    assert of_first[0]["error_type"] == "ValueError"
    assert of_first[0]["error_message"] == "bad\nvalue"
    assert len(of_first[0]["fingerprint"]) == 16
    (other,) = [r for r in fails if r["message_id"] == ids[1]]
    assert (other["outcome"], other["error_message"]) == ("dead", "never")

    dead = as_dicts(
        pipeline.spark.read.format("rqretry")
        .options(**options, kind="dead_letters", group="g", includeHeaders="true")
        .load()
        .orderBy("id")
        .collect()
    )
    record = next(r for r in dead if r["id"] == ids[0])
    assert json.loads(record["body"]) == {"n": 0}
    assert (record["deliveries"], record["cause"]) == (2, "failure")
    assert [e["attempt"] for e in record["errors"]] == [1, 2]
    assert record["errors"][0]["error_type"] == "ValueError"
    assert record["first_attempt_at"] < record["last_attempt_at"] <= record["dead_since"]
    assert record["headers"] == {}
    assert len(dead) == 2


def test_offsets_cut_the_history_exactly_inside_an_entry(pipeline: Pipeline) -> None:
    pipeline.client.publish_many("t", list(range(10)))
    offsets = [r.offset for r in pipeline.read("t").orderBy("offset").collect()]
    pipeline.client.publish("t", 10)

    def between(start: str, end: str) -> list[str]:
        df = pipeline.read(
            "t",
            startingOffsets=json.dumps({"t": {"0": start}}),
            endingOffsets=json.dumps({"t": {"0": end}}),
        )
        return sorted(r.offset for r in df.select("offset").collect())

    assert between(offsets[3], offsets[7]) == offsets[3:7]
    assert between(offsets[0], "latest")[:10] == offsets
    assert len(between("earliest", "latest")) == 11
    assert between(offsets[5], offsets[5]) == []


def test_every_partition_of_several_topics_is_read_once_however_it_is_cut(
    pipeline: Pipeline,
) -> None:
    pipeline.client.admin.create_topic("a", 3)
    for topic in ("a", "b"):
        for _ in range(4):
            pipeline.client.publish_many(topic, list(range(50)))
    whole = pipeline.read("a,b")
    assert whole.rdd.getNumPartitions() == 1
    assert pipeline.read("a,b", minPartitions=2).rdd.getNumPartitions() == 4
    assert whole.count() == 400
    assert whole.select("message_id").distinct().count() == 400
    assert pipeline.read("*").count() == 400
    pieces = pipeline.read("*", minPartitions=16, fetchSize=7)
    assert pieces.rdd.getNumPartitions() >= 4
    assert pieces.select("topic", "partition", "offset").distinct().count() == 400
    assert pieces.count() == 400


def test_filters_read_less_and_change_no_answer(pipeline: Pipeline) -> None:
    pipeline.client.admin.create_topic("a", 2)
    ids = pipeline.client.publish_many("a", list(range(20)))
    consumer = pipeline.client.simple_consumer("a", group="g", create_group=True)
    consumer.ack(consumer.receive(max_messages=5, invisible_duration=60, wait=0))
    all_rows, pushed = pipeline.read("a"), pipeline.read("a", pushFilters="true")
    moment = max(row.event_time for row in all_rows.collect())
    conditions = [
        fn.col("event") == "lease",
        fn.col("group") == "g",
        fn.col("partition") == 1,
        fn.col("topic").isin("a", "x"),
        fn.col("message_id") == ids[3],
        fn.col("event_time") >= fn.lit(moment),
        fn.col("event_time") < fn.lit(moment),
        (fn.col("event_time") <= fn.lit(moment)) & (fn.col("event") == "publish"),
        fn.col("attempt") == 1,
    ]
    for condition in conditions:
        expected = sorted(r.offset for r in all_rows.where(condition).collect())
        assert sorted(r.offset for r in pushed.where(condition).collect()) == expected
    assert pushed.where("partition = 1").rdd.getNumPartitions() == 1


def test_a_schema_of_the_users_choice_is_obeyed(pipeline: Pipeline) -> None:
    pipeline.client.publish("t", 1)
    reader = pipeline.spark.read.format("rqretry").options(**pipeline.options("t"))
    rows = reader.schema("event string, message_id string").load().collect()
    assert [row.event for row in rows] == ["publish"]
    with pytest.raises(PySparkException, match="there is no column 'body' in kind history"):
        reader.schema("body string").load().collect()
    with pytest.raises(PySparkException, match="column 'attempt' is int, not string"):
        reader.schema("attempt string").load().collect()


def test_stored_messages_are_read_with_bodies_as_text_and_as_bytes(pipeline: Pipeline) -> None:
    pipeline.client.publish("t", {"n": 1}, id="json", tag="x", keys=["k"], headers={"h": "v"})
    pipeline.client.publish("t", b"\x00\xff", id="raw")
    rows = {r.id: r for r in pipeline.read("t", kind="messages", includeHeaders="true").collect()}
    assert json.loads(rows["json"].body) == {"n": 1}
    assert (rows["json"].tag, rows["json"]["keys"], rows["json"].headers) == (
        "x",
        ["k"],
        {"h": "v"},
    )
    assert rows["json"].published_at is not None
    assert rows["raw"].body is None
    assert bytes(rows["raw"].raw) == b"\x00\xff"
    assert "headers" not in pipeline.read("t", kind="messages").columns


def test_what_was_trimmed_is_an_error_unless_reported_otherwise(pipeline: Pipeline) -> None:
    first = pipeline.client.publish_many("t", [0])
    offset = pipeline.read("t").collect()[0].offset
    pipeline.redis.hset(pipeline.meta("t"), "limit", 1)
    for n in range(3):
        pipeline.client.publish("t", n)
    start = json.dumps({"t": {"0": offset}})

    with pytest.raises(PySparkException, match="partition 0, was trimmed up to"):
        pipeline.read("t", startingOffsets=start).collect()
    left = pipeline.read("t", startingOffsets=start, failOnDataLoss="false").collect()
    assert first[0] not in {r.message_id for r in left}
    assert len(left) == 1
    assert pipeline.read("t").count() == 1
