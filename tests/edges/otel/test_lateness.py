"""Spans say why an attempt was late: its waits, what ended the attempt before, and who decided."""

import asyncio
from typing import Any

import pytest

from rqretry import Message, OutgoingMessage, Postpone, RetryPolicy
from rqretry.core.message_id import born_ms
from rqretry.core.parts import parts_of
from rqretry.observability import observer
from rqretry.protocol.audit_log import exit_record
from rqretry.protocol.keys import NamespaceKeys
from rqretry.protocol.lease import lease
from tests.contract.integration.harness import NAMESPACE, Lab, counted
from tests.edges.otel.collector import Collector, Received
from tests.edges.otel.conftest import Traced

NEVER = RetryPolicy.fixed("1ms", max_retries=0)
WAITS = ("rqretry.queue_wait_ms", "rqretry.buffer_wait_ms")
LATE_MS = 60_000


def named(spans: list[Received], name: str) -> list[Received]:
    return [span for span in spans if span.name == name]


async def test_each_attempt_says_when_it_was_due_and_where_it_waited(
    lab: Lab, collector: Collector, traced: Traced
) -> None:
    tracing = traced(collector.http)
    app, seen = lab.app(), list[str]()
    await app.admin.create_topic("t")
    await app.admin.create_group("g", "t", policy=NEVER)

    @app.consumer("t", group="g", concurrency=1)
    async def settle(message: Message[Any]) -> None:
        await asyncio.sleep(0.02)
        if message.body == "dies":
            raise ValueError
        if message.body == "not now" and not seen:
            seen.append(message.id)
            raise Postpone("20ms")

    plain = await app.publish("t", 1, tag="a", keys="k")
    later = await app.publish("t", 2, delay="40ms")
    batch = await app.publish_many("t", [OutgoingMessage(body="dies", id="chosen")])
    await app.publish("t", "not now")
    async with lab.working(app):
        await counted(lab, "g", succeed=3, dead=1)
        await app.admin.redrive("g", all=True)
        await counted(lab, "g", dead=2)
    tracing.stop()
    spans = collector.spans
    attempts = named(spans, "process t")
    by_id = {span["messaging.message.id"]: span for span in attempts}
    assert by_id[plain]["rqretry.due_ms"] == born_ms(plain)
    born = born_ms(later)
    assert born is not None
    assert by_id[later]["rqretry.due_ms"] == born + 40
    put_off, then = (span for span in attempts if span["messaging.message.id"] == seen[0])
    assert put_off["rqretry.next_due_ms"] == then["rqretry.due_ms"]
    for span in attempts:
        waits = [span[name] for name in WAITS]
        assert span["rqretry.lateness_ms"] == sum(waits)
        assert all(0 <= wait < LATE_MS for wait in waits)
    first, again = (span for span in attempts if span["messaging.message.id"] == batch[0])
    assert again["rqretry.due_ms"] >= first["rqretry.due_ms"] + first["rqretry.lateness_ms"]


async def test_a_publish_says_what_it_was_given_and_where_it_went(
    lab: Lab, collector: Collector, traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observer, "_servers", {})  # other tests have the namespace elsewhere
    tracing = traced(collector.http)
    app = lab.app()
    await app.publish("t", 1, tag="a", keys=["k", "l"], delay="2s")
    await app.publish("t", 2, message_group="m")
    await app.publish("t", 3, delay_level=3)
    with pytest.raises(Exception, match="delay"):
        await app.publish("t", 4, delay="soon")
    tracing.stop()
    first, second, third, refused = named(collector.wait(4), "publish t")
    assert (first["rqretry.tag"], first["rqretry.keys"]) == ("a", "k l")
    assert (first["rqretry.delay_ms"], third["rqretry.level"]) == (2000, 3)
    assert second["rqretry.message_group"] == "m"
    assert refused.failed
    assert "rqretry.delay_ms" not in refused.attributes
    assert {span["server.address"] for span in (first, second, third)} == {
        str(lab.server.socket_path)
    }


async def test_the_attempt_before_says_how_it_ended(
    lab: Lab, collector: Collector, traced: Traced
) -> None:
    tracing = traced(collector.http)
    app, before = lab.app(), list[Any]()

    @app.consumer("t", group="g", policy=RetryPolicy.fixed("1ms", max_retries=3))
    async def settle(message: Message[Any]) -> None:
        before.append(message.last_error)
        if message.attempt == 2:
            raise ValueError("no")

    parts = parts_of(app.client)
    await app.admin.create_topic("t")
    await app.admin.create_group("g", "t", policy="fixed:1ms", max_retries=3)
    id_ = app.client.publish("t", 1)
    keys = parts.catalog.group_keys("t", 0, "g")
    parts.store.run(lease(keys, worker="gone", want=1, visibility_ms=1))
    ran = [("t", "g", str(id_))]
    ended = exit_record(
        NamespaceKeys(NAMESPACE), process="h:1", ending="ended with SIGKILL", ran=ran
    )
    parts.store.run(ended)
    await asyncio.to_thread(expired, lab)
    async with lab.working(app):
        await counted(lab, "g", succeed=1)
    tracing.stop()
    second, third = named(collector.wait(3), "process t")
    assert second["rqretry.previous.cause"] == "expired"
    assert "SIGKILL" in second["rqretry.previous.reason"]
    assert second["rqretry.previous.worker"] == "h:1"
    assert second["rqretry.due_ms"] == before[0].at_ms
    assert third["rqretry.due_ms"] == second["rqretry.next_due_ms"]
    assert "rqretry.previous.cause" not in third.attributes
    linked = {about["rqretry.link"]: about for about in third.link_attributes}
    assert linked["previous_attempt"]["error.type"] == "ValueError"
    assert linked["previous_attempt"]["rqretry.attempt"] == 2
    assert linked["previous_attempt"]["rqretry.cause"] == "failure"


def expired(lab: Lab) -> None:
    while not lab.expire("t", "g"):
        pass


async def test_a_decision_is_a_span_and_marks_what_it_rolled_back(
    lab: Lab, collector: Collector, traced: Traced
) -> None:
    tracing = traced(collector.http)
    app = lab.app()
    async with app.transaction("t") as tx:
        await tx.publish(1)
    undone = app.client.transaction("t")
    undone.publish(2)
    app.client.admin.rollback_transaction(undone.id)
    with pytest.raises(Exception, match="rolled back"):
        undone.commit()
    tracing.stop()
    spans = collector.wait(6)
    published, lost = named(spans, "publish t")
    (commit, refused), (rollback,) = named(spans, "commit t"), named(spans, "rollback t")
    assert (commit["rqretry.transaction"], commit["rqretry.outcome"]) == (tx.id, "committed")
    assert commit.links == [(published.span_id, "publish")]
    assert (rollback.trace_id, rollback.links) == (lost.trace_id, [(lost.span_id, "publish")])
    (mark,) = named(spans, "rolled_back t")
    assert (mark.trace_id, mark.parent_id) == (lost.trace_id, lost.span_id)
    assert refused.failed


async def test_a_kept_failure_has_its_publish_and_what_its_handler_did(
    lab: Lab, collector: Collector, traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    tracing = traced(collector.http, keep_failures=True)
    tracer = tracing.provider.get_tracer("shop")
    app = lab.app()

    @app.consumer("t", group="g", policy=NEVER)
    async def settle(message: Message[Any]) -> None:
        with tracer.start_as_current_span("look up"), tracer.start_as_current_span("query"):
            if message.body == "dies":
                raise ValueError("no")

    async with lab.working(app):
        ids = await app.publish_many("t", ["fine"] * 20 + ["dies"])
        await counted(lab, "g", succeed=20, dead=1)
    tracing.stop()
    (publish,) = named(spans := collector.wait(5), "publish t")
    (attempt,), (look_up,) = named(spans, "process t"), named(spans, "look up")
    (query,) = named(spans, "query")
    assert len(named(spans, "dead_letter %DLQ%g")) == 1
    assert attempt.parent_id == publish.span_id
    assert (look_up.parent_id, query.parent_id) == (attempt.span_id, look_up.span_id)
    assert publish["messaging.message.id"] == attempt["messaging.message.id"] == ids[-1]
    assert publish["rqretry.reconstructed"] is True
