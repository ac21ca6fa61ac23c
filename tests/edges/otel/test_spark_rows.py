"""What tasks of Spark publish is traced like any publish; the tasks are run here, without a JVM."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rqretry import ConfigError, InvalidArgument, Message
from rqretry.observability import observer
from rqretry.spark.options import read_options
from rqretry.spark.publish_tracing import tracing_of_tasks
from rqretry.spark.rows import Mapping
from rqretry.spark.sink import publish_batches
from rqretry.spark.task_context import Task, Totals
from tests.contract.integration.harness import NAMESPACE, Lab, Seen, counted
from tests.edges.otel.collector import Collector, Received
from tests.edges.otel.conftest import Traced

ROOT = Path(__file__).parents[3]
BODY = Mapping("body", True, ())
WITH_ID = Mapping("body", True, (("id", "id"), ("headers", "headers")))


def rows(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch({"body": [json.dumps({"n": number}) for number in numbers]})


def named_rows(*ids: str) -> pa.RecordBatch:
    headers = pa.array([[("a", "b")]] * len(ids), pa.map_(pa.string(), pa.string()))
    return pa.record_batch({"body": ["1"] * len(ids), "id": list(ids), "headers": headers})


def publish(lab: Lab, mapping: Mapping, *batches: pa.RecordBatch, job: str = "job") -> Totals:
    """One task, which may be run again."""
    given = {"url": lab.url, "namespace": NAMESPACE, "topic": "t", "batchSize": "2"}

    def refuse(place: object, error: Exception) -> None:
        raise InvalidArgument(f"row {place}: {error}")

    return publish_batches(
        read_options(given), mapping, Task(job, 0, replayable=True), batches, refuse
    )


async def handled(lab: Lab, count: int) -> list[Message[Any]]:
    """What a worker gets of the topic."""
    app, seen = lab.app(), Seen()

    @app.consumer("t", group="g")
    async def settle(message: Message[Any]) -> None:
        seen.add(message)

    async with lab.working(app):
        await counted(lab, "g", succeed=count)
    return seen.messages


def by_id(spans: list[Received], name: str) -> dict[str, Received]:
    found = [span for span in spans if span.name == name]
    stated = {str(span["messaging.message.id"]): span for span in found}
    assert len(stated) == len(found)
    return stated


@pytest.mark.parametrize("kind", ["made ids", "own ids"])
async def test_each_row_has_a_producer_span_and_carries_its_context(
    lab: Lab, collector: Collector, traced: Traced, kind: str
) -> None:
    tracing = traced(collector.http)
    if kind == "made ids":
        totals = publish(lab, BODY, rows(1, 2, 3), rows(4, 5))
    else:
        totals = publish(lab, WITH_ID, named_rows("a", "b", "c"), named_rows("d", "e"))
    assert (totals.rows, totals.sent, totals.known) == (5, 5, 0)
    messages = await handled(lab, 5)
    tracing.stop()
    spans = collector.wait(10)
    published, attempts = by_id(spans, "publish t"), by_id(spans, "process t")
    assert published.keys() == attempts.keys() == {message.id for message in messages}
    for id_, span in published.items():
        assert (span.kind, span.parent_id, span.failed) == ("producer", "", False)
        assert span["messaging.operation.type"] == "send"
        assert (attempts[id_].trace_id, attempts[id_].parent_id) == (span.trace_id, span.span_id)
    assert {m.headers.get("a") for m in messages} == ({None} if kind == "made ids" else {"b"})


@pytest.mark.parametrize("kind", ["made ids", "own ids"])
@pytest.mark.parametrize("first", ["traced", "untraced"])
def test_a_task_that_runs_again_publishes_once_whether_it_is_traced_or_not(
    lab: Lab, collector: Collector, traced: Traced, kind: str, first: str
) -> None:
    mapping = BODY if kind == "made ids" else WITH_ID
    batches = [rows(1, 2, 3)] if kind == "made ids" else [named_rows("a", "b", "c")]
    before, after = ([True, True, False], [False, True, True])[first == "untraced"], []
    for on in before:
        tracing = traced(collector.http) if on else None
        if not on:
            observer.install(None)
        after.append(publish(lab, mapping, *batches))
        if tracing is not None:
            tracing.stop()
    assert [(totals.sent, totals.known) for totals in after] == [(3, 0), (0, 3), (0, 3)]
    known = [span.attributes.get("rqretry.duplicate", False) for span in collector.wait(6)]
    assert known == [False] * 3 + [True] * 3 if first == "traced" else [True] * 6


def test_a_row_that_cannot_be_sent_has_a_failed_span_and_changes_no_error(
    lab: Lab, collector: Collector, traced: Traced
) -> None:
    tracing = traced(collector.http)
    publish(lab, BODY, rows(1, 2))
    with pytest.raises(ConfigError, match="has published other rows"):
        publish(lab, BODY, rows(1, 3))
    tracing.stop()
    spans = collector.wait(4)
    assert [span.failed for span in spans] == [False, False, True, True]
    assert {span["error.type"] for span in spans[2:]} == {"ConfigError"}


def test_a_task_is_traced_where_its_environment_says_so_and_exports_at_its_end(
    lab: Lab, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.http)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "60000")
    for number in (1, 2):  # one process runs task after task
        publish(lab, BODY, rows(1, 2), job=f"job {number}")
        assert observer.installed is None
        collector.wait(2 * number)
    assert {span.service for span in collector.spans} == {"rqretry-spark"}


def test_without_a_collector_nothing_is_traced(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    publish(lab, WITH_ID, named_rows("a"))
    assert lab.client().admin.message("a").headers == {"a": "b"}


def test_the_command_reports_the_tasks_where_to_export_to() -> None:
    url = "http://localhost:4318"
    assert tracing_of_tasks(None) == {}
    assert tracing_of_tasks(url) == {"spark.executorEnv.OTEL_EXPORTER_OTLP_ENDPOINT": url}
    with pytest.raises(ConfigError, match="must be a URL"):
        tracing_of_tasks("localhost:4318")


@pytest.mark.campaign
@pytest.mark.spark
@pytest.mark.timeout(400)
async def test_pipeline_ingest_is_traced_from_its_tasks_to_the_attempts(
    lab: Lab, collector: Collector, traced: Traced, tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f'{{"n": {number}}}\n' for number in range(20)))
    request_parts = [
        "pipeline",
        "ingest",
        str(path),
        "t",
        "--format",
        "json",
        "--otlp",
        collector.http,
    ]
    kept = {name: text for name, text in os.environ.items() if not name.startswith("OTEL_")}
    ours = {"RQRETRY_REDIS_URL": lab.url, "RQRETRY_NAMESPACE": NAMESPACE, "PYTHONPATH": str(ROOT)}
    stated = subprocess.run(  # noqa: ASYNC221 - nothing else is to happen
        [sys.executable, "-m", "rqretry", *request_parts],
        env=kept | ours,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert stated.returncode == 0, stated.stderr
    assert len(collector.wait(20, 30)) == 20
    tracing = traced(collector.http)
    await handled(lab, 20)
    tracing.stop()
    spans = collector.wait(40)
    published, attempts = by_id(spans, "publish t"), by_id(spans, "process t")
    assert {id_: span.span_id for id_, span in published.items()} == {
        id_: span.parent_id for id_, span in attempts.items()
    }
