"""One trace from a publisher to a consumer, whichever of them comes through a gateway."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rqretry import App, AsyncClient, Client, Message, RetryPolicy
from rqretry.core.traceparent import ids_of
from rqretry.gateway.protocol import v2
from rqretry.otel.setup import Tracing
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.edges.gateway.raw import Raw, message, named, receive, send
from tests.edges.gateway.test_deliveries import grouped, lease_of
from tests.edges.otel.collector import Collector, Received
from tests.edges.otel.conftest import collector, traced

__all__ = ["collector", "traced"]

TRACE_ID, SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CONTEXT = f"00-{TRACE_ID}-{SPAN_ID}-01"
Start = Callable[..., Tracing]


@pytest.fixture
def exported(collector: Collector, traced: Start) -> Iterator[Callable[[], list[Received]]]:
    """Has this process traced; answers the spans that have ended, by their start."""
    tracing = traced(collector.http)

    def spans() -> list[Received]:
        tracing.stop()
        return collector.spans

    yield spans


@asynccontextmanager
async def working(app: App) -> AsyncIterator[None]:
    """A Python worker."""
    task = asyncio.create_task(app.run(signals=False))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def worker_of(url: str, topic: str) -> tuple[App, "asyncio.Queue[Message[Any]]"]:
    """A Python worker that is called with each message of a topic."""
    app, seen = App(url), asyncio.Queue[Message[Any]]()

    @app.consumer(topic, group=topic, policy=RetryPolicy.fixed("50ms"))
    async def handle(message: Message[Any]) -> None:
        seen.put_nowait(message)

    return app, seen


def carried(topic: str, how: str) -> Any:
    """A message with a trace context, as a client of another language brings it along."""
    if how == "system property":
        return message(topic, trace_context=CONTEXT)
    made = message(topic)
    made.user_properties["traceparent"] = CONTEXT
    return made


@pytest.mark.parametrize("how", ["system property", "user property"])
async def test_an_attempt_of_a_python_worker_is_in_the_trace_of_a_client(
    strict: str,
    client: Client,
    redis_server: EmbeddedRedis,
    exported: Callable[[], list[Received]],
    how: str,
) -> None:
    topic = f"traced-in-{how.partition(' ')[0]}"
    grouped(client, topic, topic)
    app, seen = worker_of(redis_server.url, topic)
    async with Raw(strict) as raw, working(app):
        assert await raw.code("SendMessage", send(carried(topic, how))) == "OK"
        got = await asyncio.wait_for(seen.get(), 10)
    assert got.trace_id == TRACE_ID
    publish, process = exported()
    assert (publish.name, process.name) == (f"publish {topic}", f"process {topic}")
    assert (publish.trace_id, publish.parent_id) == (TRACE_ID, SPAN_ID)
    assert (process.trace_id, process.parent_id) == (TRACE_ID, publish.span_id)


async def test_a_gateway_that_is_not_traced_hands_the_context_on(
    strict: str, client: Client, redis_server: EmbeddedRedis
) -> None:
    grouped(client, "untraced", "untraced")
    app, seen = worker_of(redis_server.url, "untraced")
    async with Raw(strict) as raw, working(app):
        assert await raw.code("SendMessage", send(carried("untraced", "system property"))) == "OK"
        got = await asyncio.wait_for(seen.get(), 10)
    assert got.headers["traceparent"] == CONTEXT


async def test_a_push_consumer_gets_the_context_of_a_python_publisher(
    strict: str,
    client: Client,
    redis_server: EmbeddedRedis,
    exported: Callable[[], list[Received]],
) -> None:
    topic = "traced-out"
    grouped(client, topic, topic, policy=RetryPolicy.fixed("50ms"))
    async with Raw(strict) as raw, AsyncClient(redis_server.url) as publisher:
        await publisher.publish(topic, b"x")
        _, (first,) = await raw.receive(receive(topic, topic, auto_renew=True))
        change = named("ChangeInvisibleDurationRequest", **lease_of(first, topic))
        assert await raw.code("ChangeInvisibleDuration", change) == "OK"
        _, (second,) = await raw.receive(receive(topic, topic, auto_renew=True, wait=10))
        handle = second.system_properties.receipt_handle
        entries = [v2.AckMessageEntry(receipt_handle=handle)]
        done = named("AckMessageRequest", topic, topic, entries=entries)
        assert await raw.code("AckMessage", done) == "OK"
    publish, receive_1, nack, receive_2, ack = exported()
    for found in (first, second):
        context = found.system_properties.trace_context
        assert ids_of(context) == (publish.trace_id, publish.span_id)
        assert found.user_properties["traceparent"] == context
    assert (receive_1.trace_id, receive_1.parent_id) == (publish.trace_id, publish.span_id)
    assert (nack.name, nack.parent_id) == (f"nack {topic}", receive_1.span_id)
    assert (publish.span_id, "publish") in receive_2.links
    assert receive_2["rqretry.previous.cause"] == "failure"
    assert (ack.name, ack.parent_id) == (f"ack {topic}", receive_2.span_id)


async def test_an_attempt_after_a_clients_failure_is_linked_to_the_publish(
    strict: str,
    client: Client,
    redis_server: EmbeddedRedis,
    exported: Callable[[], list[Received]],
) -> None:
    topic = "traced-on"
    grouped(client, topic, topic, policy=RetryPolicy.fixed("50ms"))
    app, seen = worker_of(redis_server.url, topic)
    async with Raw(strict) as raw:
        assert await raw.code("SendMessage", send(carried(topic, "system property"))) == "OK"
        _, (found,) = await raw.receive(receive(topic, topic, auto_renew=True))
        change = named("ChangeInvisibleDurationRequest", **lease_of(found, topic))
        assert await raw.code("ChangeInvisibleDuration", change) == "OK"
        async with working(app):
            await asyncio.wait_for(seen.get(), 10)
    spans = {span.name: span for span in exported()}
    publish, process = spans[f"publish {topic}"], spans[f"process {topic}"]
    assert (publish.trace_id, publish.parent_id) == (TRACE_ID, SPAN_ID)
    assert (publish.span_id, "publish") in process.links
    assert process["rqretry.previous.cause"] == "failure"
    assert process["rqretry.attempt"] == 2


async def test_a_context_of_another_form_is_delivered_as_it_was_sent(lenient: str) -> None:
    made = message("otherwise", trace_context="SW1.1|of somebody's own")
    async with Raw(lenient) as raw:
        assert await raw.code("SendMessage", send(made)) == "OK"
        _, (found,) = await raw.receive(receive("all", "otherwise", wait=10))
    assert found.system_properties.trace_context == "SW1.1|of somebody's own"
    assert dict(found.user_properties) == {}
