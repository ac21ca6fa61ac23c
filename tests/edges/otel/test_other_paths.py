"""Spans beside the usual way: transactions, simple consumers, and messages that die by expiry."""

from collections.abc import Callable
from typing import Any

import pytest

from rqretry import Client, InvalidReceiptHandle, Message, RetryPolicy
from rqretry.core.parts import parts_of
from rqretry.maintenance.upkeep import Upkeep
from rqretry.protocol.lease import lease
from tests.contract.integration.harness import Lab, Seen, counted, until
from tests.edges.otel.collector import Collector, Received
from tests.edges.otel.conftest import Traced


def named(spans: list[Received], name: str) -> list[Received]:
    return [span for span in spans if span.name == name]


# -- transactions ----------------------------------------------------------------------------------


async def test_a_committed_half_message_continues_the_trace_of_its_prepare(
    lab: Lab, collector: Collector, traced: Traced
) -> None:
    tracing = traced(collector.http)
    app, seen = lab.app(), Seen()

    @app.consumer("t", group="g")
    async def settle(message: Message[Any]) -> None:
        seen.add(message)

    async with lab.working(app):
        async with app.transaction("t") as tx:
            one = await tx.publish(1, headers={"a": "b"})
            many = await tx.publish_many([2, 3])
        with app.client.transaction("t") as other:
            last = other.publish(4)
        with pytest.raises(ZeroDivisionError):
            async with app.transaction("t") as undone:
                await undone.publish(5)
                raise ZeroDivisionError
        await counted(lab, "g", succeed=4)
    tracing.stop()

    # Two commits, and a rollback with what it rolled back.
    spans = collector.wait(1 + 3 + 1 + 1 + 4 + 2 + 2)
    producers = [span for span in spans if span.kind == "producer"]
    assert [span.name for span in producers] == [
        "publish t", "create t", "create t", "publish t", "publish t",
    ]  # fmt: skip
    assert [span["rqretry.transaction"] for span in producers] == [
        *[tx.id] * 3, other.id, undone.id,
    ]  # fmt: skip
    assert [span["messaging.message.id"] for span in producers[:4]] == [one, *many, last]
    attempts = named(spans, "process t")
    assert {(span.trace_id, span.parent_id) for span in attempts} == {
        (span.trace_id, span.span_id) for span in producers[:4]
    }
    assert sorted(m.headers.get("a", "") for m in seen.messages) == ["", "", "", "b"]


async def test_what_a_transaction_refuses_is_a_failed_span(
    lab: Lab, collector: Collector, traced: Traced
) -> None:
    tracing = traced(collector.http)
    app = lab.app()
    tx = app.transaction("t")
    await tx.publish(1)
    await tx.commit()
    with pytest.raises(Exception, match="takes no more messages"):
        await tx.publish(2)  # not sent, so there is no span
    with app.client.transaction("t") as other:
        other.publish(3, id="mine")
        with pytest.raises(Exception, match="mine"):
            other.publish(4, id="mine")
    tracing.stop()
    spans = collector.wait(5)
    (first, second, refused), commits = named(spans, "publish t"), named(spans, "commit t")
    assert [span.failed for span in (first, second, refused, *commits)] == [
        False, False, True, False, False,
    ]  # fmt: skip
    assert refused["error.type"] == "MessageIdTaken"


# -- simple consumers ------------------------------------------------------------------------------


async def test_receive_and_ack_are_one_trace_with_the_publish(
    lab: Lab, collector: Collector, traced: Traced
) -> None:
    tracing = traced(collector.http)
    client = lab.client()
    client.admin.create_topic("t")
    consumer = client.simple_consumer("t", group="g", create_group=True)
    id_ = client.publish("t", 1)
    (message,) = consumer.receive(wait=5)
    trace_id = message.trace_id
    consumer.ack(message)
    tracing.stop()

    publish, receive, ack = collector.wait(3)
    assert (receive.name, receive.kind) == ("receive t", "client")
    assert receive["messaging.operation.type"] == "receive"
    assert (receive.trace_id, receive.parent_id) == (publish.trace_id, publish.span_id)
    assert receive["messaging.message.id"] == id_
    assert (receive["rqretry.attempt"], receive["rqretry.outcome"]) == (1, "received")
    assert trace_id == receive.trace_id
    assert (ack.name, ack.kind) == ("ack t", "client")
    assert ack["messaging.operation.type"] == "settle"
    assert (ack.trace_id, ack.parent_id) == (receive.trace_id, receive.span_id)
    assert ack["messaging.consumer.group.name"] == "g"
    assert ack["rqretry.outcome"] == "success"


async def test_a_nack_a_longer_lease_and_a_stale_ack_have_spans_of_their_own(
    lab: Lab, collector: Collector, traced: Traced
) -> None:
    tracing = traced(collector.http)
    client = lab.client()
    client.admin.create_topic("t")
    consumer = client.simple_consumer("t", group="g", create_group=True)
    client.publish("t", 1)
    (message,) = consumer.receive(wait=5)
    old = message.receipt_handle
    consumer.change_invisible_duration(message, 60)
    consumer.change_invisible_duration(message, 0)
    with pytest.raises(InvalidReceiptHandle):
        consumer.ack(old)
    (again,) = consumer.receive(wait=5)
    with tracing.provider.get_tracer("shop").start_as_current_span("look up"):
        consumer.ack(again)
    tracing.stop()

    publish, receive, change, nack, stale, second, inner, ack = collector.wait(8)
    assert [span.name for span in (change, nack)] == ["change_invisible_duration t", "nack t"]
    assert {change.parent_id, nack.parent_id} == {receive.span_id}
    assert (stale.name, stale.failed, stale["rqretry.outcome"]) == (
        "ack t",
        True,
        "stale",
    )
    assert stale.parent_id == "", "a handle alone does not tell where it was received"
    assert (second.name, second["rqretry.attempt"]) == ("receive t", 2)
    assert (second.parent_id, second.links) == ("", [(publish.span_id, "publish")])
    assert (ack.name, ack.parent_id) == ("ack t", inner.span_id)
    assert ack.links == [(second.span_id, "receive")]


async def test_a_receive_inside_a_span_is_below_it_and_linked_to_the_publish(
    lab: Lab, collector: Collector, traced: Traced
) -> None:
    tracing = traced(collector.http)
    app = lab.app()
    await app.admin.create_topic("t")
    consumer = await app.async_client.simple_consumer("t", group="g", create_group=True)
    await app.publish_many("t", [1, 2])
    with tracing.provider.get_tracer("shop").start_as_current_span("batch"):
        messages = await consumer.receive(wait=5)
        await consumer.ack(messages)
    assert await consumer.receive(wait=0) == [], "nothing received is no span"
    tracing.stop()
    spans = collector.wait(2 + 1 + 1 + 2 + 2)
    (batch,), creates = named(spans, "batch"), named(spans, "create t")
    received, acked = named(spans, "receive t"), named(spans, "ack t")
    assert {span.parent_id for span in (*received, *acked)} == {batch.span_id}
    assert [span.links for span in received] == [[(span.span_id, "publish")] for span in creates]
    assert [span.links for span in acked] == [[(span.span_id, "receive")] for span in received]
    assert {span["messaging.batch.message_count"] for span in received} == {2}


# -- death by expiry -------------------------------------------------------------------------------


def leave_with(client: Client, topic: str, group: str) -> None:
    """A worker that leases one message, and is never heard of again."""
    parts_of(client).store.perform(parts_of(client).catalog.topics.get(topic))
    keys = parts_of(client).catalog.group_keys(topic, 0, group)
    leased = parts_of(client).store.run(lease(keys, worker="gone", want=1, visibility_ms=10))
    assert len(leased.ids) == 1


async def test_a_message_that_dies_by_expiry_has_a_dead_letter_span(
    lab: Lab, collector: Collector, traced: Traced
) -> None:
    tracing = traced(collector.http)
    app, client = lab.app(), lab.client()

    @app.consumer("t", group="g", policy=RetryPolicy.fixed("1ms", max_retries=1))
    async def settle(message: Message[Any]) -> None:
        await app.admin.pause("g")
        raise ValueError("once")

    async with lab.working(app):
        id_ = await app.publish("t", 1)
        await counted(lab, "g", fail=1)
    client.admin.resume("g")
    await until(lambda: client.admin.promote("g", all=True) == 1 or lab.stats("g").retry == 1)
    leave_with(client, "t", "g")
    async with lab.working(app):
        await until(lambda: tracing.counts.ended == 3)
    tracing.stop()

    publish, attempt, dead = collector.wait(3)
    assert (dead.name, dead.kind, dead.failed) == ("dead_letter %DLQ%g", "producer", True)
    assert dead["messaging.destination.name"] == "%DLQ%g"
    assert (dead["messaging.message.id"], dead["rqretry.topic"]) == (id_, "t")
    assert (dead["rqretry.deliveries"], dead["rqretry.cause"]) == (2, "expired")
    assert dead.parent_id == ""
    assert dead.links == [(publish.span_id, "publish"), (attempt.span_id, "previous_attempt")]


Reported = Callable[[], bool]


async def by_receive(lab: Lab, stated: Reported) -> None:
    with lab.client().simple_consumer("t", group="g") as consumer:
        await until(lambda: not consumer.receive(wait=0) and stated())


async def by_the_reaper_command(lab: Lab, stated: Reported) -> None:
    client = lab.client()

    def died() -> bool:
        parts_of(client).store.perform(Upkeep(parts_of(client).catalog, "reaper").round())
        return stated()

    await until(died)


async def by_a_worker_of_another_group(lab: Lab, stated: Reported) -> None:
    app = lab.app()

    @app.consumer("t", group="other")
    async def settle(message: Message[Any]) -> None:
        """Nothing."""

    async with lab.working(app):
        await until(stated)


@pytest.mark.parametrize(
    "who",
    [
        by_receive,
        by_the_reaper_command,
        pytest.param(by_a_worker_of_another_group, marks=pytest.mark.campaign),
    ],
)
async def test_whoever_expires_it_reports(
    lab: Lab, collector: Collector, traced: Traced, who: Callable[[Lab, Reported], Any]
) -> None:
    tracing = traced(collector.http)
    client = lab.client()
    client.admin.create_topic("t")
    client.simple_consumer("t", group="g", create_group=True, max_retries=0)
    client.publish("t", 1)
    leave_with(client, "t", "g")
    await who(lab, lambda: tracing.counts.ended == 2)
    tracing.stop()
    publish, dead = collector.wait(2)
    assert dead.name == "dead_letter %DLQ%g"
    assert (dead.trace_id, dead.parent_id) == (publish.trace_id, publish.span_id)


async def test_with_one_trace_a_death_by_expiry_is_below_the_publish(
    lab: Lab, collector: Collector, traced: Traced
) -> None:
    tracing = traced(collector.http, one_trace=True)
    client = lab.client()
    client.admin.create_topic("t")
    consumer = client.simple_consumer("t", group="g", create_group=True, max_retries=1)
    client.publish("t", "x" * 20_000)  # too long to be read again for its headers
    client.publish("t", 2)
    await until(lambda: not consumer.receive(2, "10ms", wait=0) and lab.stats("g").dead == 2)
    tracing.stop()
    spans = collector.wait(2 + 4 + 2)
    publishes = {span.span_id: span for span in named(spans, "publish t")}
    large, small = sorted(named(spans, "dead_letter %DLQ%g"), key=lambda span: span.parent_id)
    assert large.parent_id == ""
    assert small.parent_id in publishes
