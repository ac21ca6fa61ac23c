"""A batch is one span, linked to the publish of each of its messages."""

from typing import Any

from rqretry import DeadLetter, Message, RetryPolicy
from tests.contract.integration.harness import Lab, counted
from tests.edges.otel.collector import Collector
from tests.edges.otel.conftest import Traced

Messages = list[Message[Any]]


async def test_a_batch_is_a_span_linked_to_each_publish_and_says_what_failed(
    lab: Lab, collector: Collector, traced: Traced
) -> None:
    tracing = traced(collector.http)
    app, inside = lab.app(), []

    @app.consumer("t", group="g", batch=3, policy=RetryPolicy.fixed("1ms", max_retries=1))
    async def handle(messages: Messages) -> dict[str, Any]:
        inside.append({message.trace_id for message in messages})
        outcomes = {"good": True, "bad": messages[0].attempt > 1, "dead": DeadLetter("no use")}
        return {message.id: outcomes[message.body] for message in messages}

    ids = {body: str(await app.publish("t", body)) for body in ("good", "bad", "dead")}
    async with lab.working(app):
        await counted(lab, "g", succeed=2, dead=1)
    tracing.stop()
    spans = collector.wait(6)
    published = {span["messaging.message.id"]: span for span in spans if span.name == "publish t"}
    first, second = sorted(
        (span for span in spans if span.name == "process t"),
        key=lambda span: span["rqretry.attempt"],
    )
    (dead,) = (span for span in spans if span.name == "dead_letter %DLQ%g")
    assert inside[0] == {first.trace_id}
    assert first["messaging.batch.message_count"] == 3
    assert sorted(first.links) == sorted((published[i].span_id, "publish") for i in ids.values())
    assert {event["messaging.message.id"] for _, event in first.events} == {ids["bad"], ids["dead"]}
    assert {name for name, _ in first.events} == {"rqretry.failure", "rqretry.dead_letter"}
    assert dead.parent_id == first.span_id
    assert second["messaging.batch.message_count"] == 1
    assert (first.span_id, "previous_attempt") in second.links
    assert (first.failed, second.failed, second["rqretry.outcome"]) == (True, False, "success")
