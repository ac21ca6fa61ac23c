# ruff: noqa: ARG001, D101, D103, INP001
"""What type checkers see: checked by mypy and pyright (`make lint`), never run.

A line that must be refused carries an ignore for the error that refuses it; both report an ignore
that is not needed.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, assert_type

from rqretry import (
    App,
    AsyncClient,
    AsyncSimpleConsumer,
    AsyncTransaction,
    CallNext,
    Client,
    ConsumeResult,
    DeadLetterRecord,
    Event,
    GroupStats,
    Message,
    MessageId,
    MessageView,
    OutgoingMessage,
    RetryPolicy,
    SimpleConsumer,
    Stats,
    Task,
    TaskSender,
    Topic,
    Transaction,
    TransactionCheck,
    TransactionResolution,
)


@dataclass
class Flight:
    number: int


@asynccontextmanager
async def lifespan(app: App) -> AsyncIterator[dict[str, int]]:
    yield {}


app = App("redis://localhost:6379/0", include=["shop.billing"], lifespan=lifespan)
flights = app.topic("flights", body=Flight, partitions=2)
assert_type(flights, Topic[Flight])
assert_type(app.topic("anything"), Topic[Any])


@app.consumer("flights", group="claims", policy=RetryPolicy.fixed(1), retry_on=ValueError)
async def settle(message: Message[Flight]) -> ConsumeResult:
    assert_type(message.body, Flight)
    assert_type(message.id, str)
    assert_type(message.keys, tuple[str, ...])
    assert_type(message.attempt, int)
    return ConsumeResult.SUCCESS


@flights.consumer(group="audit", concurrency=4)
def note(flight: Flight, message: Message[Any]) -> bool:
    return flight.number > 0


@app.consumer(["a", "b"], group="c", none_is="maybe")  # type: ignore[call-overload, untyped-decorator]
async def wrong(message: Message[Any]) -> None: ...


@app.consumer("flights", group="bulk", batch=200, batch_wait="50ms")
async def insert(messages: list[Message[Flight]]) -> None:
    assert_type(messages[0].body, Flight)


@flights.consumer(group="each", batch=10)
def each(messages: list[Message[Flight]]) -> dict[str, ConsumeResult | bool]:
    return {message.id: message.body.number > 0 for message in messages}


@app.consumer("flights", group="one", batch=10)  # type: ignore[type-var]
async def takes_one(message: Message[Flight]) -> None: ...


@app.consumer("flights", group="answer", batch=10)  # type: ignore[type-var]
async def answers_a_list(messages: list[Message[Flight]]) -> list[bool]:
    return [True]


@flights.consumer(group="late", batch=10, batch_wait=None)  # type: ignore[call-overload, untyped-decorator]
async def waits_for_none(messages: list[Message[Flight]]) -> None: ...


@app.task()
async def send_email(to: str, *, copies: int = 0) -> bool:
    return True


@app.task
def bare(to: str) -> int:
    return 1


@app.task("resize-image", process=True, max_retries=3)
def resize(width: int, height: int = 10) -> bytes:
    return b""


@app.middleware
async def timed(message: Message[Any], call_next: CallNext) -> ConsumeResult:
    return await call_next(message)


@app.transaction_checker("shop", check_after="1m", timeout=5)
async def check(tx: TransactionCheck) -> TransactionResolution:
    assert_type(tx.messages[0].topic, str)
    return TransactionResolution.UNKNOWN


@app.on("failure")
def tell(event: Event) -> None:
    assert_type(event.next_due_ms, int | None)


app.on("fialure")  # type: ignore[arg-type]


async def decorated_functions_keep_their_signature(message: Message[Flight]) -> None:
    assert_type(await settle(message), ConsumeResult)
    assert_type(note(Flight(1), message), bool)
    assert_type(await timed(message, settle), ConsumeResult)
    tell(Event("failure", "me"))
    settle(1)  # type: ignore[arg-type, unused-coroutine]


async def a_task_is_sent_as_it_is_called() -> None:
    assert_type(await send_email("a", copies=1), bool)
    assert_type(await send_email.send("a", copies=1), MessageId)
    assert_type(send_email.send_sync(to="a"), MessageId)
    assert_type(resize(1), bytes)
    assert_type(resize.send_sync(1, height=2), MessageId)
    assert_type(bare("a"), int)
    assert_type(bare.send_sync("a"), MessageId)
    bare.send_sync(1)  # type: ignore[arg-type]
    assert isinstance(resize, Task)
    assert isinstance(send_email.options(delay="10s", id="once"), TaskSender)
    assert_type(await send_email.options(delay=10).send("a"), MessageId)
    await send_email.send(1)  # type: ignore[arg-type]
    await send_email.send("a", 1)  # type: ignore[call-arg]
    send_email.send_sync()  # type: ignore[call-arg]
    await send_email.options(id="x").send(copies=1)  # type: ignore[call-arg]
    resize.options(dealy=1)  # type: ignore[call-arg]


async def publishing_answers_ids() -> None:
    assert_type(await app.publish("t", {"a": 1}, delay="10s"), MessageId)
    assert_type(await app.publish_many("t", [1, 2]), list[MessageId])
    assert_type(await flights.publish(Flight(1)), MessageId)
    assert_type(app.client.publish("t", 1), MessageId)
    assert_type(app.publish_sync("t", {"a": 1}, delay="10s"), MessageId)
    assert_type(app.publish_many_sync("t", [1, 2]), list[MessageId])
    assert_type(flights.publish_sync(Flight(1), id="once"), MessageId)
    assert_type(flights.publish_many_sync([Flight(1)]), list[MessageId])
    assert_type(await flights.publish(OutgoingMessage(body=Flight(1))), MessageId)
    await flights.publish({"number": 1})  # type: ignore[arg-type]
    flights.publish_many_sync([1])  # type: ignore[list-item]
    await app.publish("t", 1, delay=object())  # type: ignore[arg-type]


async def the_operators_verbs_are_typed(client: Client, other: AsyncClient) -> None:
    assert_type(client.admin.dead_letters("g"), list[DeadLetterRecord])
    assert_type(await other.admin.dead_letters("g"), list[DeadLetterRecord])
    assert_type(await app.admin.message("id"), MessageView)
    assert_type(client.admin.message("id"), MessageView)
    stats = client.admin.stats("t")
    assert_type(stats, Stats)
    assert_type(stats.groups, Iterator[GroupStats])
    await other.admin.stats("t", "g", "h")  # type: ignore[call-arg]


def transactions_and_simple_consumers_have_names(client: Client, other: AsyncClient) -> None:
    assert_type(client.transaction("t", check_every=5), Transaction)
    assert_type(app.transaction("t"), AsyncTransaction)
    consumer = client.simple_consumer("t", group="g", create_group=True, start="earliest")
    assert_type(consumer, SimpleConsumer)
    assert_type(consumer.receive(), list[Message[Any]])
    assert_type(other.simple_consumer(["t", "u"], group="g"), AsyncSimpleConsumer)
    client.simple_consumer("g", "t")  # type: ignore[call-arg]
    client.simple_consumer("t", group="g", begin="earliest")  # type: ignore[call-arg]
