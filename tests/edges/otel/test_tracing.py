"""What tracing must keep: contexts apart, messages as they are, every span, and the speed."""

import asyncio
import threading
from typing import Any

import pytest
from opentelemetry import context as otel_context
from opentelemetry import trace

from rqretry import ConfigError, ConsumeResult, Message, OutgoingMessage, RetryPolicy
from rqretry.core.limits import MAX_HEADERS
from rqretry.observability.trace_settings import TraceSettings
from rqretry.otel.setup import Tracing
from tests.contract.integration.harness import Lab, Seen, counted, until
from tests.edges.otel import handlers
from tests.edges.otel.collector import Collector, Received
from tests.edges.otel.conftest import Traced

TWICE = RetryPolicy.fixed("1ms", max_retries=1)
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def named(spans: list[Received], name: str) -> list[Received]:
    return [span for span in spans if span.name == name]


def only(spans: list[Received], name: str) -> Received:
    (found,) = named(spans, name)
    return found


# -- contexts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_what_a_handler_traces_and_publishes_is_below_its_attempt(
    lab: Lab, collector: Collector, traced: Traced, kind: str
) -> None:
    tracing = traced(collector.http)
    tracer = tracing.provider.get_tracer("shop")
    app = lab.app()

    async def settle(message: Message[Any]) -> None:
        with tracer.start_as_current_span("look up"):
            await app.publish("done", message.body)

    def settle_in_a_thread(message: Message[Any]) -> None:
        with tracer.start_as_current_span("look up"):
            app.client.publish("done", message.body)

    app.consumer("t", group="g")(settle if kind == "async" else settle_in_a_thread)
    async with lab.working(app):
        await app.publish("t", 1)
        await counted(lab, "g", succeed=1)
    tracing.stop()
    spans = collector.wait(4)
    attempt, inner = only(spans, "process t"), only(spans, "look up")
    assert inner.parent_id == attempt.span_id
    assert only(spans, "publish done").parent_id == inner.span_id
    assert len({span.trace_id for span in spans}) == 1


async def test_a_handler_in_a_process_of_its_own_continues_the_trace(
    lab: Lab, collector: Collector, traced: Traced
) -> None:
    tracing = traced(collector.http)
    app = lab.app()
    app.consumer("t", group="g", process=True, concurrency=1, policy=TWICE)(handlers.compute)
    async with lab.working(app):
        await app.publish("t", "fine")
        await counted(lab, "g", succeed=1)
        await app.publish("t", "fail")
        await counted(lab, "g", dead=1)
    tracing.stop()
    spans = collector.wait(9)
    attempts = {span.span_id: span for span in named(spans, "process t")}
    inner = named(spans, "compute")
    assert len(attempts) == len(inner) == 3
    assert {span.parent_id for span in inner} == set(attempts)
    assert all(span.trace_id == attempts[span.parent_id].trace_id for span in inner)


async def test_nothing_leaks_from_one_attempt_to_the_next(
    lab: Lab, collector: Collector, traced: Traced
) -> None:
    tracing = traced(collector.http)
    tracer = tracing.provider.get_tracer("shop")
    app, seen = lab.app(), list[str | None]()

    @app.consumer("t", group="g", concurrency=1)
    async def settle(message: Message[Any]) -> None:
        seen.append(message.trace_id)
        forgotten = tracer.start_span("forgotten")  # attached, and never detached
        otel_context.attach(trace.set_span_in_context(forgotten))
        forgotten.end()

    async with lab.working(app):
        for number in range(5):
            await app.publish("t", number)
        await counted(lab, "g", succeed=5)
    tracing.stop()
    spans = collector.wait(15)
    publishes = {span.span_id: span for span in named(spans, "publish t")}
    attempts = named(spans, "process t")
    assert {span.parent_id for span in attempts} == set(publishes)
    assert all(span.trace_id == publishes[span.parent_id].trace_id for span in attempts)
    assert sorted(map(str, seen)) == sorted(span.trace_id for span in attempts)
    assert not trace.get_current_span().get_span_context().is_valid


# -- publishing ------------------------------------------------------------------------------------


async def test_publish_many_gives_each_message_a_span_that_its_attempt_is_below(
    lab: Lab, collector: Collector, traced: Traced
) -> None:
    tracing = traced(collector.http)
    app, seen = lab.app(), Seen()

    @app.consumer("t", group="g")
    async def settle(message: Message[Any]) -> None:
        seen.add(message)

    async with lab.working(app):
        items = [1, OutgoingMessage(body=2, headers={"a": "b"}), OutgoingMessage(body=3)]
        ids = await app.publish_many("t", items)
        await counted(lab, "g", succeed=3)
    tracing.stop()
    spans = collector.wait(7)
    whole, creates = only(spans, "publish t"), named(spans, "create t")
    assert (whole.kind, whole["messaging.batch.message_count"]) == ("client", 3)
    assert [link for link, _ in whole.links] == [span.span_id for span in creates]
    assert [span["messaging.message.id"] for span in creates] == ids
    assert {span.kind for span in creates} == {"producer"}
    assert len({span.trace_id for span in [*creates, whole]}) == 4, "no trace of a million spans"
    parents = {span["messaging.message.id"]: span.parent_id for span in named(spans, "process t")}
    assert parents == {span["messaging.message.id"]: span.span_id for span in creates}
    assert sorted(m.headers.get("a", "") for m in seen.messages) == ["", "", "b"]


async def test_the_same_message_in_another_trace_is_the_same_message(
    lab: Lab, collector: Collector, traced: Traced
) -> None:
    traced(collector.http)
    app = lab.app()
    first = await app.publish("t", {"n": 1}, id="mine", headers={"a": "b"})
    again = await app.publish("t", {"n": 1}, id="mine", headers={"a": "b"})
    assert (first.duplicate, again.duplicate) == (False, True)
    first = await app.publish("t", 7)
    assert not first.duplicate


async def test_a_message_without_room_for_a_header_is_published_as_it_is(
    lab: Lab, collector: Collector, traced: Traced
) -> None:
    tracing = traced(collector.http)
    app = lab.app()
    headers = {f"h{number}": "x" for number in range(MAX_HEADERS)}
    await app.publish("t", 1, headers=headers)
    await app.publish("t", 2, headers={"big": "x" * (16 * 1024 - 3)})
    (message,) = [await app.admin.message(i) for i in [await app.publish("t", 3, headers=headers)]]
    assert message.headers == headers
    tracing.stop()
    assert len(collector.wait(3)) == 3


async def test_a_publish_that_fails_says_so_and_changes_no_error(
    lab: Lab, collector: Collector, traced: Traced
) -> None:
    tracing = traced(collector.http)
    app = lab.app()
    with pytest.raises(Exception, match="set"):
        await app.publish("t", {1, 2})
    with pytest.raises(Exception, match="headers"):
        await app.publish("t", 1, headers=["no"])  # type: ignore[arg-type]
    tracing.stop()
    first, second = collector.wait(2)
    assert first.failed and first["error.type"] == "CodecError"
    assert second.failed and second["error.type"] == "InvalidArgument"


async def test_headers_that_the_publisher_brings_are_the_parent_and_bad_ones_are_nothing(
    lab: Lab, collector: Collector, traced: Traced
) -> None:
    tracing = traced(collector.http)
    app = lab.app()
    await app.publish("t", 1, headers={"traceparent": TRACEPARENT})
    await app.publish("t", 2, headers={"traceparent": "00-no-such-trace"})
    tracing.stop()
    good, bad = collector.wait(2)
    assert (good.trace_id, good.parent_id) == tuple(TRACEPARENT.split("-")[1:3])
    assert bad.parent_id == ""


# -- outcomes --------------------------------------------------------------------------------------


async def test_an_attempt_reports_how_it_ended(
    lab: Lab, collector: Collector, traced: Traced
) -> None:
    tracing = traced(collector.http)
    app, running, postponed = lab.app(), threading.Event(), threading.Event()

    @app.consumer("t", group="g", policy=TWICE, consume_timeout="100ms")
    async def settle(message: Message[Any]) -> ConsumeResult:
        match message.body:
            case "postpone" if not postponed.is_set():
                postponed.set()
                return ConsumeResult.postpone("1ms")
            case "reject":
                return ConsumeResult.dead_letter("wrong airline")
            case "slow":
                running.set()
                await asyncio.sleep(30)
            case _:
                pass
        return ConsumeResult.SUCCESS

    async with lab.working(app):
        await app.publish_many("t", ["postpone", "reject", "slow"])
        await counted(lab, "g", succeed=1, dead=2)
        await until(running.is_set)
    tracing.stop()
    spans = collector.wait(1 + 3 + 2 + 1 + 2 + 2)
    outcomes = [span["rqretry.outcome"] for span in named(spans, "process t")]
    assert sorted(outcomes) == ["dead_letter", "dead_letter", "failure", "postponed", "success"]
    shown = {span.shown for span in spans if span.failed}
    assert shown == {"wrong airline", "the handler ran longer than consume_timeout, 0.1 s"}


async def test_a_message_given_back_at_the_stop_is_released(
    lab: Lab, collector: Collector, traced: Traced
) -> None:
    tracing = traced(collector.http)
    app, started = lab.app(), asyncio.Event()

    @app.consumer("t", group="g")
    async def settle(message: Message[Any]) -> None:
        started.set()
        await asyncio.sleep(30)

    async with lab.working(app, grace=0.05):
        await app.publish("t", 1)
        await started.wait()
    tracing.stop()
    attempt = only(collector.wait(2), "process t")
    assert attempt["rqretry.outcome"] == "released"


# -- sampling and loss -----------------------------------------------------------------------------


async def test_failures_are_kept_whatever_the_sampler_says(
    lab: Lab, collector: Collector, traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    tracing = traced(collector.http, keep_failures=True)
    app = lab.app()

    @app.consumer("t", group="g", policy=TWICE)
    async def settle(message: Message[Any]) -> None:
        if message.body == "dies" or (message.body == "fails" and message.attempt == 1):
            raise ValueError(message.body)

    async with lab.working(app):
        await app.publish_many("t", ["fine"] * 20 + ["fails", "dies"])
        await counted(lab, "g", succeed=21, dead=1)
    tracing.stop()
    spans = collector.wait(7)
    assert len(named(spans, "publish t")) == 2, "of those that failed"
    outcomes = [span["rqretry.outcome"] for span in named(spans, "process t")]
    assert sorted(outcomes) == ["dead_letter", "failure", "failure", "success"]
    assert len(named(spans, "dead_letter %DLQ%g")) == 1
    assert tracing.counts.ended == tracing.counts.exported == 7


async def test_spans_that_the_collector_refuses_are_counted_and_disturb_nobody(
    lab: Lab, collector: Collector, traced: Traced, caplog: pytest.LogCaptureFixture
) -> None:
    tracing = traced(collector.http)
    collector.refusing = True
    app = lab.app()

    @app.consumer("t", group="g")
    async def settle(message: Message[Any]) -> None:
        """Nothing."""

    async with lab.working(app):
        await app.publish("t", 1)
        await counted(lab, "g", succeed=1)
    tracing.stop()
    assert tracing.counts.missing == 2
    assert "2 of 2 spans were not exported" in caplog.text


async def test_spans_that_find_the_queue_full_are_dropped_and_counted(
    lab: Lab,
    collector: Collector,
    traced: Traced,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "5")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "60000")
    collector.hold()
    tracing = traced(collector.http)
    app = lab.app()
    await app.publish_many("t", range(30))  # a span for each message, and one for the call
    counts = tracing.counts
    assert counts.ended == 31
    # Five are on their way to a collector that does not answer, and five wait: no more fit.
    assert 21 <= counts.dropped <= 26
    assert caplog.text.count("5 spans wait for export: further ones are dropped") == 1
    collector.let_go()
    tracing.stop()
    assert counts.exported + counts.dropped == 31
    assert counts.refused == 0
    collector.wait(counts.exported)
    assert counts.by_result() == {
        "exported": counts.exported,
        "refused": 0,
        "dropped": counts.dropped,
    }
    assert f"{counts.dropped} of 31 spans were not exported" in caplog.text
    assert f": {counts.dropped} dropped from a full queue" in caplog.text
    assert len(await app.admin.topics()) == 1, "messages are not held up"


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("OTEL_BSP_MAX_QUEUE_SIZE", "many", "'many' must be a number from 1"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "100000", "do not fit together"),
    ],
)
def test_a_queue_that_cannot_work_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, shown: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=shown):
        Tracing(TraceSettings("http://127.0.0.1:1", "test"))


async def test_spans_say_why_an_attempt_was_late_and_show_no_secrets(
    lab: Lab, collector: Collector, traced: Traced
) -> None:
    tracing = traced(collector.http)
    app = lab.app()

    @app.consumer("t", group="g", policy=RetryPolicy.fixed("20ms", max_retries=1))
    async def charge(message: Message[Any]) -> None:
        raise ValueError("password=hunter2 is wrong")

    async with lab.working(app):
        await app.publish("t", 1, keys=["k1", "k2"], message_group="m")
        await counted(lab, "g", dead=1)
    tracing.stop()
    spans = collector.wait(4)
    first, second = sorted(named(spans, "process t"), key=lambda span: span.start_ns)
    assert (first["rqretry.keys"], first["rqretry.message_group"]) == ("k1 k2", "m")
    assert second["rqretry.due_ms"] == first["rqretry.next_due_ms"]
    assert 0 <= second["rqretry.queue_wait_ms"] < 60_000
    assert first["rqretry.due_ms"] <= second["rqretry.due_ms"]
    assert "hunter2" not in str(spans)
    assert second.shown == "password=*** is wrong"
