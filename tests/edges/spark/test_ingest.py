"""ingest: files to messages, restarts, and rows that do not fit."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rqretry import ConfigError, InvalidArgument, RqretryError, StoreUnavailable
from rqretry.spark import IngestSummary, ingest
from tests.edges.spark.pipeline import Pipeline

pytestmark = [pytest.mark.campaign, pytest.mark.spark, pytest.mark.timeout(400)]


def run(pipeline: Pipeline, path: Path, topic: str = "t", **more: Any) -> IngestSummary:
    where = {"url": pipeline.url, "namespace": pipeline.namespace}
    return ingest(pipeline.spark, str(path), topic, **{**where, **more})


def parquet(path: Path, count: int, group_size: int = 100) -> Path:
    rows = {"n": list(range(count)), "name": [f"row {n}" for n in range(count)]}
    pq.write_table(pa.table(rows), path, row_group_size=group_size)
    return path


def test_every_row_of_a_parquet_file_is_one_message_however_often_it_is_run(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    path = parquet(tmp_path / "rows.parquet", 500)
    stated: list[tuple[int, int]] = []

    first = run(pipeline, path, progress=lambda done, tasks: stated.append((done, tasks)))
    again = run(pipeline, path)

    assert (first.rows, first.published, first.known, first.rejected) == (500, 500, 0, 0)
    assert (again.published, again.known, again.job) == (0, 500, first.job)
    assert stated[-1][0] == stated[-1][1] > 0
    assert pipeline.stored("t") == 500
    bodies = {r.body for r in pipeline.read("t", kind="messages").collect()}
    assert json.loads(min(bodies)) == {"n": 0, "name": "row 0"}
    assert len(bodies) == 500


def test_files_that_changed_are_another_job_and_under_its_old_name_an_error(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    path = parquet(tmp_path / "rows.parquet", 100)
    run(pipeline, path, job="load")
    parquet(path, 90)
    with pytest.raises(ConfigError, match="has published other rows to topic 't' before"):
        run(pipeline, path, job="load")
    assert pipeline.stored("t") == 100
    assert run(pipeline, path).published == 90


def test_columns_become_id_key_tag_and_delay_and_what_does_not_fit_is_put_aside(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    path = tmp_path / "claims.csv"
    lines = ["id,who,kind,wait,n", "a,ada,red,0,1", "b,bob,blue,1h,2", "c,cy,no tag,0,3", "d"]
    path.write_text("\n".join([*lines, "e,eve,red,soon,5", "f,flo,red,,six"]) + "\n")

    schema = "id string, who string, kind string, wait string, n int"
    columns = {"id": "id", "key": "who", "tag": "kind", "delay": "wait"}
    done = run(pipeline, path, schema=schema, **columns)

    assert (done.rows, done.published, done.rejected) == (6, 2, 4)
    stats = pipeline.client.admin.stats("t")
    assert (stats.backlog, stats.scheduled) == (1, 1)
    (message,) = pipeline.client.simple_consumer("t", group="g", create_group=True).receive(wait=0)
    assert (message.id, message.keys, message.tag) == ("a", ("ada",), "red")
    assert message.body == {"id": "a", "who": "ada", "kind": "red", "wait": "0", "n": 1}
    assert done.rejected_folder is not None
    aside = {row["id"]: row for row in pq.read_table(done.rejected_folder).to_pylist()}
    reasons = {id_: row["rejected_because"] for id_, row in aside.items()}
    assert "tag 'no tag' holds ' '" in reasons["c"]
    assert reasons["d"] == "the line 'd' is not a row of its file"
    assert "delay 'soon'" in reasons["e"]
    assert "is not a row of its file" in reasons["f"]


def test_json_lines_are_rows_and_a_broken_line_is_put_aside(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"n": 1, "in": {"x": [1, 2]}}\n{"n": \n{"n": 3}\n')
    done = run(pipeline, path)
    assert (done.published, done.rejected) == (2, 1)
    assert sorted(pipeline.bodies("t"), key=lambda body: body["n"]) == [
        {"n": 1, "in": {"x": [1, 2]}},
        {"n": 3, "in": None},
    ]


@pytest.mark.parametrize(
    ("name", "more", "error", "shown"),
    [
        ("none.parquet", {}, ConfigError, "cannot be read as parquet"),
        ("rows.txt", {}, InvalidArgument, "has no known extension"),
        ("rows.parquet", {"format": "xml"}, InvalidArgument, "format 'xml' must be one of"),
        ("rows.parquet", {"id": "x"}, InvalidArgument, "there is no column 'x' in the files"),
        ("rows.parquet", {"tag": "n"}, InvalidArgument, "column 'n' is bigint; it must be string"),
        ("rows.parquet", {"topic": "a b"}, InvalidArgument, "topic 'a b' holds ' '"),
        ("rows.parquet", {"url": "redis://:s3cret@127.0.0.1:1"}, StoreUnavailable, "unreachable"),
    ],
)
def test_what_cannot_be_ingested_is_one_sentence(
    pipeline: Pipeline,
    tmp_path: Path,
    name: str,
    more: dict[str, Any],
    error: type[RqretryError],
    shown: str,
) -> None:
    parquet(tmp_path / "rows.parquet", 3)
    with pytest.raises(error) as caught:
        run(pipeline, tmp_path / name, more.pop("topic", "t"), **more)
    assert shown in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "s3cret" not in str(caught.value)
