"""One small test of each promise, in one file, so that `make test` starts one JVM.

The rest of this folder that needs Spark is run by `make campaign`.
"""

import csv
import json
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from py4j.protocol import Py4JError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import functions as fn

from rqretry import ConfigError, InvalidArgument, OutgoingMessage
from rqretry.cli.pipeline import pipeline as command
from rqretry.spark import archive, ingest, run_query
from rqretry.spark.archive_job import DELTA, FORMATS, PARQUET
from rqretry.spark.error_messages import first_line
from rqretry.spark.report_job import open_archive
from tests.edges.spark.archives import (
    READERS,
    archived,
    following,
    forget_last_commit,
    history,
    in_table,
    kill_archives,
    run,
    wait_until,
    watched,
    where,
)
from tests.edges.spark.pipeline import Pipeline

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

TRACE = "0af7651916cd43dd8448eb211c80319c"
FILE_SIZE = resource.RLIMIT_FSIZE
UNREACHABLE = "redis://:s3cret@127.0.0.1:1"


def test_publishes_leases_and_commits_are_read_with_what_they_say(pipeline: Pipeline) -> None:
    headers = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
    ids = pipeline.client.publish_many(
        "t", [OutgoingMessage(body=1, tag="a", keys=["k1", "k2"], headers=headers), 2]
    )
    consumer = pipeline.client.simple_consumer("t", group="g", create_group=True)
    consumer.ack(consumer.receive(max_messages=2, invisible_duration=60, wait=0))

    rows = [row.asDict(recursive=True) for row in pipeline.read("t").orderBy("offset").collect()]

    assert [(r["event"], r["message_id"]) for r in rows] == [
        (verb, id_) for verb in ("publish", "lease", "succeed") for id_ in ids
    ]
    assert [r["outcome"] for r in rows[::2]] == ["stored", "inflight", "committed"]
    assert [r["attempt"] for r in rows[::2]] == [None, 1, 1]
    assert [r["group"] for r in rows[::2]] == [None, "g", "g"]
    first, second = rows[0], rows[1]
    assert (first["tag"], first["keys"], first["trace_id"]) == ("a", ["k1", "k2"], TRACE)
    assert (second["tag"], second["keys"], second["trace_id"]) == (None, None, None)
    assert first["offset"].endswith(":0")
    assert second["offset"] == first["offset"][:-1] + "1"
    assert rows[2]["tag"] is None
    assert isinstance(first["event_time"], datetime)


def failing_once(marker: Path, after: int) -> Any:
    """A map over batches that breaks the first attempt of partition 0 after some rows."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context: Any = TaskContext.get()
        seen = 0
        for batch in batches:
            yield batch
            seen += batch.num_rows
            if context.partitionId() == 0 and seen >= after and not marker.exists():
                marker.touch()
                raise OSError("injected failure of a task")

    return run


def test_a_failed_task_that_runs_again_publishes_each_row_once(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    pipeline.client.admin.create_topic("t", 2)
    rows = pipeline.spark.range(0, 6000, 1, 2).mapInArrow(
        failing_once(tmp_path / "failed", 1500), "id long"
    )
    pipeline.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 500)
    try:
        pipeline.write(rows.select(fn.struct("id").alias("body")), "t", batchSize=100)
    finally:
        pipeline.spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert (tmp_path / "failed").exists()
    assert pipeline.stored("t") == 6000
    assert sorted(body["id"] for body in pipeline.bodies("t")) == list(range(6000))


def test_an_id_is_published_once_and_refused_with_another_body(pipeline: Pipeline) -> None:
    rows = pipeline.spark.range(100).selectExpr(
        "concat('flight-', id) as flight", "struct(id as n) as body"
    )
    pipeline.write(rows, "t", idColumn="flight")
    pipeline.write(rows, "t", idColumn="flight")
    assert pipeline.stored("t") == 100

    other = pipeline.spark.sql("select 'flight-7' as flight, struct(8L as n) as body")
    with pytest.raises(PySparkException, match="id 'flight-7' is the id of another message"):
        pipeline.write(other, "t", idColumn="flight")
    assert pipeline.stored("t") == 100


def test_every_event_is_archived_once_wherever_hadoop_puts_it(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    hadoop: Any = pipeline.spark._jsc.hadoopConfiguration()
    hadoop.set("fs.viewfs.mounttable.shared.link./data", tmp_path.as_uri())
    location, output = "viewfs://shared/data/out", tmp_path / "out"
    pipeline.client.admin.create_topic("a", 2)
    pipeline.client.publish_many("a", list(range(30)))
    assert run(pipeline, location, max_events=25).events == 30
    forget_last_commit(output)  # as after a kill: the batch is run again
    pipeline.client.publish_many("b.created", list(range(30)))
    done = run(pipeline, location, max_events=25)
    assert done.events == 30
    assert [(lag.topic, lag.partition, lag.events) for lag in done.lags] == [
        ("a", 0, 0), ("a", 1, 0), ("b.created", 0, 0),
    ]  # fmt: skip
    assert archived(output) == history(pipeline)
    assert {path.name for path in output.glob("topic=*")} == {"topic=a", "topic=b.created"}
    rows = open_archive(pipeline.spark, location, "a").drop("keys")
    assert rows.exceptAll(pipeline.read("a").drop("keys")).count() == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_delta_table_has_every_event_once_is_compacted_and_keeps_its_versions(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    for n in range(3):
        pipeline.client.publish("t", n)
    before = history(pipeline)
    with watched(in_table, tmp_path):
        done = run(pipeline, tmp_path, format=DELTA, max_events=1)
    assert (done.events, done.files, done.merged) == (3, 3, 2)
    table = DeltaTable(tmp_path)
    (file,) = table.file_uris()
    assert in_table(tmp_path) == in_table(tmp_path, table.version() - 1) == before
    assert len(in_table(tmp_path, 2)) == 2
    assert pq.ParquetFile(file).num_row_groups == 1

    forget_last_commit(tmp_path)
    pipeline.client.publish("t", 3)
    done = run(pipeline, tmp_path, format=DELTA)
    assert (done.events, [lag.events for lag in done.lags]) == (1, [0])
    assert in_table(tmp_path) == history(pipeline)
    assert open_archive(pipeline.spark, str(tmp_path)).count() == 4
    with pytest.raises(ConfigError, match="is a Delta table: give --format delta"):
        run(pipeline, tmp_path)


def test_archives_that_are_killed_have_every_event_once_and_a_signal_ends_them(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    """A kill in both formats, and SIGTERM to all processes; ten kills are in test_archive.py."""
    kill_archives(pipeline, tmp_path, kills=1, waiting=1)
    everything = history(pipeline)
    with following(pipeline, tmp_path / PARQUET) as process:
        wait_until(lambda: archived(tmp_path / PARQUET) == everything, process)
        os.killpg(process.pid, signal.SIGTERM)
        shown, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert json.loads(shown)["lags"][0]["events"] == 0
    assert "Traceback" not in errors
    run(pipeline, tmp_path / DELTA, format=DELTA)
    for format_ in FORMATS:
        assert READERS[format_](tmp_path / format_) == everything


def test_the_command_ingests_what_fits_puts_the_rest_aside_and_adds_nothing_twice(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline.spark, "stop", lambda: None)  # it is that of all tests
    monkeypatch.setattr("rqretry.spark.sessions.session", lambda *_: pipeline.spark)
    path = tmp_path / "claims.csv"
    lines = ["who,kind,n", "ada,red,1", "cy,no tag,3", "d"]
    path.write_text("\n".join(lines) + "\n")
    request_parts = [
        "ingest",
        str(path),
        "t",
        "--schema",
        "who string, kind string, n int",
        "--json",
    ]
    request_parts += ["--tag", "kind", "--url", pipeline.url, "--namespace", pipeline.namespace]

    answers = [
        CliRunner().invoke(command, [*request_parts, *most], standalone_mode=False)
        for most in ((), ("--max-rejects", "66.7%"))
    ]

    assert [answer.exception for answer in answers] == [None, None]
    assert [answer.return_value for answer in answers] == [1, 0]
    first, again = (json.loads(answer.stdout) for answer in answers)
    assert (first["rows"], first["published"], first["known"], first["rejected"]) == (3, 1, 0, 2)
    assert (again["published"], again["known"], again["job"]) == (0, 1, first["job"])
    assert pipeline.bodies("t") == [{"who": "ada", "kind": "red", "n": 1}]
    aside = {row["who"]: row for row in pq.read_table(first["rejected_folder"]).to_pylist()}
    assert "tag 'no tag' holds ' '" in aside["cy"]["rejected_because"]
    assert aside["d"]["rejected_because"] == "the line 'd' is not a row of its file"


def test_csv_is_read_as_the_world_writes_it_or_as_the_options_say(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    where: dict[str, Any] = {"url": pipeline.url, "namespace": pipeline.namespace}
    written = ['say "hi"', "a, b", "two\nlines", "C:\\dir", "", 'ends with "', "\u00e9"]
    path = tmp_path / "rows.csv"
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        table = csv.writer(file)
        table.writerow(["n", "text", "k"])
        table.writerows([[n, text, "k"] for n, text in enumerate(written)])
        file.write("6,another body,k\r\n7,three columns were promised\r\n")

    done = ingest(pipeline.spark, str(path), "t", **where, id="n", key="k")

    assert (done.rows, done.published, done.rejected) == (9, 7, 2)
    bodies = sorted(pipeline.bodies("t"), key=lambda body: body["n"])
    assert [body["text"] for body in bodies] == [text or None for text in written]
    aside = pq.read_table(str(done.rejected_folder)).sort_by("n").to_pylist()
    assert [row["text"] for row in aside] == ["another body", "three columns were promised"]
    assert "id '6' is the id of another message" in aside[0]["rejected_because"]

    path.write_text("1;it is\n2;'a;\\'b'\n", encoding="utf-16")
    given = {"sep": ";", "quote": "'", "ESCAPE": "\\", "header": "false", "encoding": "utf-16"}
    done = ingest(pipeline.spark, str(path), "u", **where, options=given, schema="a int, b string")
    assert [body["b"] for body in pipeline.bodies("u")] == ["it is", "a;'b"]
    with pytest.raises(InvalidArgument, match="option 'qoute' is not an option of csv; did you"):
        ingest(pipeline.spark, str(path), "u", **where, options={"qoute": "'"})
    path.write_text("b,a\nx,1\n")
    with pytest.raises(ConfigError, match="is 'b, a', and the columns are 'a, b'"):
        ingest(pipeline.spark, str(path), "u", **where, schema="a int, b string")


def test_what_cannot_be_read_or_written_is_one_sentence_without_the_password(
    pipeline: Pipeline,
) -> None:
    with pytest.raises(PySparkException) as of_read:
        pipeline.read("t", url=UNREACHABLE).collect()
    rows = pipeline.spark.sql("select '{' as body")
    with pytest.raises(PySparkException) as of_write:
        pipeline.write(rows, "t")
    shown = [str(caught.value) for caught in (of_read, of_write)]
    assert "Redis at 127.0.0.1:1 is unreachable" in shown[0]
    assert "row 0 of partition 0 cannot be published: the body '{' is no JSON" in shown[1]
    for text in shown:
        assert "Traceback" not in text
        assert "s3cret" not in text
    assert pipeline.stored("t") == 0


def test_the_first_line_of_a_program_is_one_sentence_of_ours(
    pipeline: Pipeline, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline.client.publish("t", 1)
    stream = pipeline.stream("t", kind="dead_letters").writeStream.format("noop")
    stream = stream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    rows = pipeline.spark.sql("select 1 as body").write.format("rqretry").mode("overwrite")
    begun: list[tuple[Callable[[], None], str]] = [
        (lambda: run_query(stream.start), "kind 'dead_letters' cannot be read as a stream"),
        (rows.options(**pipeline.options("t")).save, "a topic cannot be overwritten"),
    ]
    for run_, said in begun:
        with pytest.raises(PySparkException) as caught:
            run_()
        first_line(lambda *_: None)(caught.type, caught.value, None)
        assert capsys.readouterr().err.startswith(f"Error: {said}")


@contextmanager
def little_room(pipeline: Pipeline, size: int) -> Iterator[None]:
    """No file that Spark writes may become larger: to it, the disk is full."""
    jvm: Any = pipeline.spark._jvm
    java, (_, most) = jvm.java.lang.ProcessHandle.current().pid(), resource.getrlimit(FILE_SIZE)
    resource.prlimit(java, FILE_SIZE, (size, most))
    try:
        yield
    finally:
        resource.prlimit(java, FILE_SIZE, (most, most))


@pytest.mark.parametrize("room", [0, 3000], ids=["checkpoint", "output"])
def test_a_full_disk_is_one_sentence_of_ours_first_in_a_program_too(
    pipeline: Pipeline, tmp_path: Path, room: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """As text, since a codec that could not be unpacked would fail in all later tests."""
    for name in ("in", "checkpoint", "out"):
        (tmp_path / name).mkdir()
    (tmp_path / "in" / "lines").write_text("x" * 3000 + "\n")
    rows = pipeline.spark.readStream.text(f"{tmp_path}/in").writeStream.format("text")
    writer = rows.option("checkpointLocation", f"{tmp_path}/checkpoint").trigger(availableNow=True)
    with little_room(pipeline, room), pytest.raises((PySparkException, Py4JError)) as caught:
        run_query(lambda: writer.start(f"{tmp_path}/out"))
    first_line(lambda *_: None)(caught.type, caught.value, None)
    shown = "Error: Spark cannot write: File too large: make room where"
    assert capsys.readouterr().err.startswith(shown)


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("dbfs:/a", 'No FileSystem for scheme "dbfs"'),
        ("hdfs:/", "Incomplete HDFS URI"),
        ("s3a://bucket/a", "S3AFileSystem not found"),
        ("{here}/file", "is a file: name a folder"),
    ],
)
def test_a_location_that_spark_does_not_know_is_refused_by_name(
    pipeline: Pipeline, tmp_path: Path, location: str, reason: str
) -> None:
    (tmp_path / "file").touch()
    place = location.format(here=tmp_path)
    pipeline.client.publish("t", 1)
    for format_ in FORMATS:
        with pytest.raises(ConfigError, match=reason) as caught:
            archive(pipeline.spark, place, **where(pipeline), format=format_)
        assert place in str(caught.value)
    with pytest.raises(ConfigError, match=reason):
        open_archive(pipeline.spark, place)
    assert not Path(place.split("/")[0] or "none").exists()
