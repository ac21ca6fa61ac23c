"""Whole stories through real OTLP: which spans there are, and how they hang together."""

from typing import Any

import pytest

from rqretry import Message, RetryPolicy
from tests.contract.integration.harness import Lab, counted
from tests.edges.otel.collector import Collector, Received
from tests.edges.otel.conftest import Traced

pytestmark = pytest.mark.parametrize("protocol", ["http", "grpc"])


@pytest.fixture
def endpoint(protocol: str, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where to export to, by the protocol of the test."""
    if protocol == "grpc":
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        return collector.grpc
    return collector.http


async def test_a_message_that_fails_twice_and_succeeds(
    lab: Lab, collector: Collector, traced: Traced, endpoint: str
) -> None:
    tracing = traced(endpoint)
    app, seen = lab.app(), list[str | None]()

    @app.consumer("flights", group="claims", policy=RetryPolicy.fixed("1ms", max_retries=5))
    async def settle(message: Message[Any]) -> None:
        seen.append(message.trace_id)
        if message.attempt < 3:
            raise ValueError(f"not yet, {message.attempt}")

    async with lab.working(app):
        id_ = await app.publish("flights", {"flight": 1}, tag="late")
        await counted(lab, "claims", succeed=1, fail=2)
    tracing.stop()

    publish, first, second, third = collector.wait(4)
    assert (publish.name, publish.kind) == ("publish flights", "producer")
    assert publish.parent_id == "" and publish.links == []
    assert publish["messaging.system"] == "rqretry"
    assert publish["messaging.operation.type"] == "send"
    assert publish["messaging.destination.name"] == "flights"
    assert publish["messaging.message.id"] == id_

    attempts = [first, second, third]
    assert {(span.name, span.kind) for span in attempts} == {("process flights", "consumer")}
    assert [span["rqretry.attempt"] for span in attempts] == [1, 2, 3]
    assert [span["rqretry.outcome"] for span in attempts] == [
        "failure",
        "failure",
        "success",
    ]
    assert [span.failed for span in attempts] == [True, True, False]
    assert {span["messaging.message.id"] for span in attempts} == {str(id_)}
    assert {span["messaging.consumer.group.name"] for span in attempts} == {"claims"}
    assert {span["messaging.operation.type"] for span in attempts} == {"process"}
    assert len({span["rqretry.worker"] for span in attempts}) == 1

    # The first attempt is a child of the publish; later ones are traces of their own with links.
    assert (first.trace_id, first.parent_id) == (publish.trace_id, publish.span_id)
    assert first.links == []
    assert second.parent_id == third.parent_id == ""
    assert len({publish.trace_id, second.trace_id, third.trace_id}) == 3
    assert second.links == [(publish.span_id, "publish"), (first.span_id, "previous_attempt")]
    assert third.links == [(publish.span_id, "publish"), (second.span_id, "previous_attempt")]
    assert seen == [span.trace_id for span in attempts]

    for number, span in enumerate((first, second), start=1):
        assert span["rqretry.level"] == 1
        assert span["rqretry.next_due_ms"] * 1_000_000 > span.start_ns - 60_000_000_000
        ((name, shown),) = span.events
        assert (name, shown["exception.type"]) == ("exception", "ValueError")
        assert shown["exception.message"] == span.shown == f"not yet, {number}"
        assert "not yet" in shown["exception.stacktrace"]
    assert tracing.counts.missing == 0


async def test_a_message_that_dies_and_is_redriven(
    lab: Lab, collector: Collector, traced: Traced, endpoint: str
) -> None:
    tracing = traced(endpoint)
    app, broken = lab.app(), [True]

    @app.consumer("flights", group="claims", policy=RetryPolicy.fixed("1ms", max_retries=1))
    def settle(message: Message[Any]) -> None:
        if broken[0]:
            raise KeyError("arrival")

    async with lab.working(app):
        id_ = await app.publish("flights", 1)
        await counted(lab, "claims", dead=1, fail=2)
        broken[0] = False
        report = await app.admin.redrive("claims", all=True)
        assert report == 1
        await counted(lab, "claims", succeed=1)
    tracing.stop()

    spans = collector.wait(6)
    publish, first, second = spans[:3]
    dead, redrive, again = _only(spans, "dead_letter"), _only(spans, "redrive"), spans[-1]
    assert [first["rqretry.outcome"], second["rqretry.outcome"]] == [
        "failure",
        "dead_letter",
    ]
    assert second.links == [(publish.span_id, "publish"), (first.span_id, "previous_attempt")]

    assert (dead.name, dead.kind) == ("dead_letter %DLQ%claims", "producer")
    assert (dead.trace_id, dead.parent_id) == (second.trace_id, second.span_id)
    assert dead["messaging.destination.name"] == "%DLQ%claims"
    assert dead["rqretry.deliveries"] == 2
    assert dead["error.type"] == "KeyError"

    assert (redrive.name, redrive.kind) == ("redrive %DLQ%claims", "producer")
    assert redrive.links == [(second.span_id, "previous_attempt")]
    assert redrive["messaging.message.id"] == id_
    assert redrive["rqretry.outcome"] == "redriven"

    assert (again.name, again["rqretry.attempt"]) == ("process flights", 1)
    assert again.parent_id == ""
    assert again.links == [(publish.span_id, "publish"), (redrive.span_id, "redrive")]
    assert again["rqretry.outcome"] == "success"


async def test_all_attempts_can_be_in_the_trace_of_the_publish(
    lab: Lab, collector: Collector, traced: Traced, endpoint: str
) -> None:
    tracing = traced(endpoint, one_trace=True)
    app = lab.app()

    @app.consumer("flights", group="claims", policy=RetryPolicy.fixed("1ms", max_retries=1))
    async def settle(message: Message[Any]) -> bool:
        return message.attempt == 2

    async with lab.working(app):
        await app.publish("flights", 1)
        await counted(lab, "claims", succeed=1, fail=1)
    tracing.stop()

    publish, first, second = collector.wait(3)
    assert {span.trace_id for span in (publish, first, second)} == {publish.trace_id}
    assert first.parent_id == second.parent_id == publish.span_id
    assert second.links == [(first.span_id, "previous_attempt")]


def _only(spans: list[Received], beginning: str) -> Received:
    (found,) = [span for span in spans if span.name.startswith(beginning)]
    return found
