"""The history as a data set: documented column by column, and older archives are read."""

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rqretry.spark import report
from rqretry.spark.columns import arrow_schema, schema_of
from rqretry.spark.options import read_options
from rqretry.spark.report_job import open_archive
from tests.edges.spark.pipeline import Pipeline

ARCHIVE_1 = Path(__file__).parent / "archive_1"
"""Written by commit 58be6c30: three orders, of which two died, one of them after a retry."""
PAGE = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()
SCHEMA = schema_of(read_options({"topic": "*"}))


def test_every_column_is_documented_with_its_type_meaning_and_example() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([a-z ]+) \| (.*) \| (`.+`) \|$", PAGE, re.MULTILINE)
    stated = [(name, type_.replace("array of string", "array<string>")) for name, type_, *_ in rows]
    assert stated == [(column.name, column.dataType.simpleString()) for column in SCHEMA.fields]


def test_columns_are_only_added_at_the_end() -> None:
    (path,) = ARCHIVE_1.rglob("*.parquet")
    before = pq.ParquetFile(path).schema_arrow
    now = arrow_schema(read_options({"topic": "*"}), SCHEMA)
    kept = [column for column in now if column.name != "topic"][: len(before)]  # it is in the path
    assert [(one.name, one.type) for one in kept] == [(one.name, one.type) for one in before]


@pytest.mark.spark
@pytest.mark.campaign
@pytest.mark.timeout(400)
def test_an_archive_of_the_version_before_is_read(pipeline: Pipeline, tmp_path: Path) -> None:
    rows = open_archive(pipeline.spark, str(ARCHIVE_1)).collect()
    assert len(rows) == 12
    assert {(row.topic, row.entry, row.handler_seconds) for row in rows} == {("orders", None, None)}
    found = report(pipeline.spark, str(tmp_path), str(ARCHIVE_1))
    (group,) = found.groups
    assert (group["messages"], group["deliveries"], group["committed"]) == (3, 4, 1)
    assert (group["dead"], group["handler_seconds"], found.losses) == (2, None, [])
