"""Writes: columns to messages, and each row once whatever runs again."""

from datetime import datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as fn

from tests.edges.spark.pipeline import Pipeline, finished

pytestmark = [pytest.mark.campaign, pytest.mark.spark, pytest.mark.timeout(400)]


def test_a_struct_is_a_json_body_with_every_type_that_json_has_a_form_for(
    pipeline: Pipeline,
) -> None:
    row = pipeline.spark.range(1).select(
        fn.struct(
            fn.lit(1).alias("i"),
            fn.lit(1.5).alias("f"),
            fn.lit("é").alias("s"),
            fn.lit(True).alias("b"),
            fn.lit(None).cast("string").alias("n"),
            fn.to_date(fn.lit("2013-01-02")).alias("d"),
            fn.to_timestamp(fn.lit("2013-01-02 03:04:05.5")).alias("t"),
            fn.lit("1.10").cast("decimal(4,2)").alias("m"),
            fn.array(fn.lit(1), fn.lit(None).cast("int")).alias("a"),
            fn.create_map(fn.lit("k"), fn.struct(fn.lit(2).alias("x"))).alias("o"),
            fn.struct(fn.lit(3).alias("y")).alias("inner"),
            fn.lit(None).cast("struct<z:int>").alias("gone"),
        ).alias("body")
    )
    pipeline.write(row, "t")
    assert pipeline.bodies("t") == [
        {
            "i": 1, "f": 1.5, "s": "é", "b": True, "n": None, "d": "2013-01-02",
            "t": "2013-01-02T03:04:05.500000Z", "m": "1.10", "a": [1, None],
            "o": {"k": {"x": 2}}, "inner": {"y": 3}, "gone": None,
        }
    ]  # fmt: skip


def test_text_is_json_bytes_are_raw_and_other_columns_are_properties(pipeline: Pipeline) -> None:
    rows = pipeline.spark.createDataFrame(
        [
            ('{"n": 1}', "i1", "red", ["k1", "k2"], {"h": "v"}, 0.0),
            ("[2]", "i2", None, None, None, 3600.0),
        ],
        "body string, id string, tag string, keys array<string>, headers map<string,string>,"
        " delay double",
    )
    pipeline.write(rows, "t")
    pipeline.write(
        pipeline.spark.sql("select cast('x' as binary) body, 'k' keys, 'mg' message_group"), "t"
    )

    group = pipeline.client.simple_consumer("t", group="g", create_group=True)
    messages = {m.id: m for m in group.receive(max_messages=9, invisible_duration=60, wait=0)}
    first = messages.pop("i1")
    assert (first.body, first.tag, first.keys, first.headers) == (
        {"n": 1}, "red", ("k1", "k2"), {"h": "v"},
    )  # fmt: skip
    (raw,) = messages.values()
    assert (raw.body, raw.keys, raw.message_group) == (b"x", ("k",), "mg")
    assert isinstance(raw.published_at, datetime)
    assert pipeline.client.admin.stats("t").scheduled == 1


@pytest.mark.parametrize(("count", "partitions"), [(600, 4), (590, 2)])
def test_a_named_job_publishes_once_and_refuses_a_plan_that_changed(
    pipeline: Pipeline, count: int, partitions: int
) -> None:
    def write(count: int, partitions: int) -> None:
        rows = pipeline.spark.range(0, count, 1, partitions).select(fn.struct("id").alias("body"))
        pipeline.write(rows, "t", jobId="nightly", batchSize=50)

    write(600, 2)
    write(600, 2)
    assert pipeline.stored("t") == 600
    with pytest.raises(PySparkException, match="has published other rows to topic 't' before"):
        write(count, partitions)
    assert pipeline.stored("t") == 600


def test_two_jobs_without_a_name_are_two_jobs(pipeline: Pipeline) -> None:
    rows = pipeline.spark.range(10).select(fn.struct("id").alias("body"))
    pipeline.write(rows, "t")
    pipeline.write(rows, "t")
    assert pipeline.stored("t") == 20


@pytest.mark.parametrize(
    ("query", "options", "shown"),
    [
        ("select 1 as n", {}, "the rows have no column body, only 'n'"),
        ("select 1 as body, 2 as n", {}, "a message has no field for column 'n'"),
        ("select 1 as body, 2.5 as id", {}, "column 'id' is decimal(2,1); it must be string or a"),
        (
            "select struct(1 as x, 2 as x) as body",
            {},
            "column 'body' has 'x' twice, of which a JSON body would hold one",
        ),
        ("select 1 as body", {"idColumn": "x"}, "no column 'x', which idColumn names"),
        ("select struct(cast('x' as binary) as x) as body", {}, "column 'body.x' is binary"),
        ("select 1 as body, true as delay", {}, "column 'delay' is boolean; it must be a number"),
        ("select 1 as body", {"topic": "a,b"}, "topic 'a,b' holds ','"),
        ("select 1 as body", {"kind": "messages"}, "option kind 'messages' is for reads"),
        ("select 1 as body", {"batchSize": "501"}, "option batchSize '501' must be a whole number"),
        ("select 1 as body", {"url": "redis://:s3cret@127.0.0.1:1"}, "127.0.0.1:1 is unreachable"),
        ("select '{' as body", {}, "row 0 of partition 0 cannot be published: the body '{' is no"),
        ("select 1 as body, 'a b' as tag", {}, "cannot be published: tag 'a b' holds ' '"),
        ("select 1 as body, cast(null as string) as id", {}, "the row has no id: it is null"),
        ("select double('NaN') as body", {}, "cannot be published: "),
    ],
)
def test_what_cannot_be_written_is_one_sentence(
    pipeline: Pipeline, query: str, options: dict[str, str], shown: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        pipeline.write(pipeline.spark.sql(query), **{"topic": "t", **options})
    text = str(caught.value)
    assert shown in text
    assert "Traceback" not in text
    assert "s3cret" not in text
    assert pipeline.stored("t") == 0


def test_overwriting_is_refused(pipeline: Pipeline) -> None:
    rows = pipeline.spark.sql("select 1 as body").write.format("rqretry")
    with pytest.raises(PySparkException, match="a topic cannot be overwritten"):
        rows.options(**pipeline.options("t")).mode("overwrite").save()


def test_a_stream_of_files_is_published_once_over_restarts_and_lost_commits(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    schema = "n long"

    def run() -> None:
        rows = pipeline.spark.readStream.schema(schema).json(str(source))
        body = rows.select(fn.struct("n").alias("body"))
        finished(pipeline.publishing(body, "t", checkpoint).start())

    def add(first: int) -> None:
        pipeline.spark.range(first, first + 300, 1, 1).selectExpr("id as n").write.json(
            str(source), mode="append"
        )

    add(0)
    run()
    # The driver dies after its tasks have published, and before it notes that the batch is done.
    for commit in (checkpoint / "commits").glob("*0*"):
        commit.unlink()
    run()
    add(300)
    run()
    assert pipeline.stored("t") == 600
    found = pipeline.read("t", kind="messages").select("body").distinct().count()
    assert found == 600


def test_a_stream_whose_input_changed_under_it_is_refused(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    source.mkdir()
    (source / "a.json").write_text('{"n": 1}\n{"n": 2}\n')

    def run() -> None:
        rows = pipeline.spark.readStream.schema("n long").json(str(source))
        body = rows.select(fn.struct("n").alias("body"))
        finished(pipeline.publishing(body, "t", checkpoint).start())

    run()
    (checkpoint / "commits" / "0").unlink()
    (source / "a.json").write_text('{"n": 1}\n{"n": 3}\n')
    with pytest.raises(PySparkException, match="has published other rows to topic 't' before"):
        run()
    assert pipeline.stored("t") == 2


def test_sql_writes_through_a_view(pipeline: Pipeline) -> None:
    options = ", ".join(f"{k} '{v}'" for k, v in pipeline.options("t").items())
    pipeline.client.publish("t", 0)
    pipeline.spark.sql(
        f"create temporary view v{pipeline.namespace} using rqretry options ({options})"
    )
    assert len(pipeline.spark.sql(f"select * from v{pipeline.namespace}").collect()) == 1
