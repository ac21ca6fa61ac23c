"""docs/notebooks/retries.ipynb: it runs, and finds what the report does."""

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

from rqretry.spark import report
from tests.edges.spark.archives import written
from tests.edges.spark.pipeline import Pipeline

NOTEBOOK = Path(__file__).parents[3] / "docs" / "notebooks" / "retries.ipynb"
CELLS = [
    "".join(cell["source"])
    for cell in json.loads(NOTEBOOK.read_text())["cells"]
    if cell["cell_type"] == "code"
]


def test_every_cell_compiles_and_none_has_kept_what_it_printed() -> None:
    for number, cell in enumerate(CELLS):
        compile(cell, f"cell {number}", "exec")
    assert all(not cell.get("outputs") for cell in json.loads(NOTEBOOK.read_text())["cells"])


@pytest.mark.spark
@pytest.mark.campaign
@pytest.mark.timeout(400)
def test_the_notebook_finds_what_the_report_does(pipeline: Pipeline, tmp_path: Path) -> None:
    mpl.use("agg")
    history = written(
        tmp_path,
        (0, "a", "publish", None, None, "stored"),
        (0, "b", "publish", None, None, "stored"),
        (1, "a", "lease", "g", 1, "inflight"),
        (3, "a", "succeed", "g", 1, "committed"),
        (9, "b", "lease", "g", 1, "inflight"),
        (10, "b", "fail", "g", 1, "waiting_retry"),
        (20, "b", "lease", "g", 2, "inflight"),
        (24, "b", "fail", "g", 2, "dead"),
    )
    found: dict[str, Any] = {"__name__": "notebook"}
    for cell in CELLS:
        exec(compile(cell.replace('"history"', repr(history)), str(NOTEBOOK), "exec"), found)
    pipeline.spark.conf.unset("spark.sql.sources.partitionColumnTypeInference.enabled")
    stated = report(pipeline.spark, str(tmp_path / "out"), history, hourly_cost=0.12)

    def same(table: str, rows: list[dict[str, Any]], *names: str) -> None:
        mine = [tuple(row[name] for name in names) for row in found[table].to_dict("records")]
        assert mine == [tuple(row[name] for name in names) for row in rows], table

    same("dead", stated.dead, "topic", "group", "error_type", "fingerprint", "died")
    same("worse", stated.dead, "fingerprint", "died")
    same("costs", stated.costs, "topic", "group", "retries", "retry_seconds", "cost")
    same("hours", stated.hours, "failed")
    assert [list(ids) for ids in found["hours"].ids] == [row["ids"] for row in stated.hours]
    done = [row for row in stated.times if row["measure"] == "to success"]
    same("waits", done, "topic", "group", "p50", "p95", "longest")
    assert list(found["waits"].slowest) == done[0]["ids"] == ["a"]
