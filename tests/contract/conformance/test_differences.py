"""Rows of docs/conformance.md, section 6, of which no other test shows all: what rqretry does.

Each probe uses the public API on a virtual clock, and its answer is compared with the row's.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rqretry import (
    App,
    ConsumeResult,
    InvalidArgument,
    InvalidReceiptHandle,
    Message,
    Postpone,
)
from rqretry.client import SimpleConsumer
from rqretry.testing import Lab
from rqretry.testing.embedded_redis import EmbeddedRedis

Probe = Callable[[Lab], Any]
PROBES: dict[str, tuple[Probe, Any]] = {}


@pytest.fixture(scope="module")
def redis_server() -> Iterator[EmbeddedRedis]:
    """One is enough: what servers do differently is tried elsewhere."""
    with EmbeddedRedis() as server:
        yield server


def row(number: str, expected: Any) -> Callable[[Probe], Probe]:
    """What a row of the table says, and who finds out."""

    def note(probe: Probe) -> Probe:
        PROBES[number] = probe, expected
        return probe

    return note


def simple(lab: Lab, **options: Any) -> SimpleConsumer:
    """A consumer of topic t."""
    lab.admin.create_topic("t")
    return lab.client.simple_consumer("t", group="g", create_group=True, **options)


def one(consumer: SimpleConsumer, **options: Any) -> Message[Any]:
    """The one message that is there."""
    (message,) = consumer.receive(wait=0, **options)
    return message


def refused(call: Callable[..., object], *args: Any, **options: Any) -> str:
    """The name of the error."""
    try:
        call(*args, **options)
    except (InvalidArgument, InvalidReceiptHandle) as error:
        return type(error).__name__
    return "taken"


def consuming(lab: Lab, handle: Callable[[Message[Any]], Any], **options: Any) -> None:
    """A push consumer of topic t."""

    async def handler(message: Message[Any]) -> Any:
        return handle(message)

    lab.app(App()).consumer("t", group="g", **options)(handler)


@row("D4", {"x": [1, 2, 3, 4], "y": [1]})
def failures_block_their_message_group(lab: Lab) -> Any:
    consuming(lab, lambda message: message.body != "x", ordered=True)
    ids = {name: lab.publish("t", name, message_group=name) for name in "xy"}
    lab.advance("3s")
    return {name: [a.number for a in lab.attempts(id_)] for name, id_ in ids.items()}


@row("D6", {"level": [0, 5, 35], "duration": [0, 7, 37], "dead": [0]})
def failures_choose_their_wait(lab: Lab) -> Any:
    chosen = {
        "level": ConsumeResult.retry(level=2),
        "duration": ConsumeResult.retry(after="7s"),
        "dead": ConsumeResult.dead_letter("no use"),
    }

    def handle(message: Message[Any]) -> ConsumeResult:
        return chosen[message.body] if message.attempt == 1 else ConsumeResult.FAILURE

    consuming(lab, handle, max_retries=2)
    ids = {name: lab.publish("t", name) for name in chosen}
    lab.advance("36s")
    lab.advance("1m")
    return {name: [a.at for a in lab.attempts(id_)] for name, id_ in ids.items()}


@row("D7", ([(1, "postponed"), (1, "postponed"), (1, "failure")], "dead"))
def postponing_is_bounded(lab: Lab) -> Any:
    def handle(message: Message[Any]) -> None:
        raise Postpone("30s")

    consuming(lab, handle, max_postpones=2, max_retries=0)
    id_ = lab.publish("t", 1)
    lab.advance("10m")
    return [(a.number, a.outcome) for a in lab.attempts(id_)], lab.history(id_)[-1]


@row("D15", (3, 5, 5))
def the_last_start_that_names_a_limit_wins(lab: Lab) -> Any:
    found = []
    for options in ({"max_retries": 3}, {"max_retries": 5}, {}):
        simple(lab, **options)
        found.append(lab.admin.group("g").max_retries)
    return tuple(found)


@row("D16", ("InvalidArgument", [1024, 1]))
def a_batch_is_at_most_1024(lab: Lab) -> Any:
    sizes: list[int] = []
    app = lab.app(App())

    async def handle(messages: list[Message[Any]]) -> None:
        sizes.append(len(messages))

    over = refused(lambda: app.consumer("t", group="h", batch=1025)(handle))
    app.consumer("t", group="g", batch=1024, batch_wait="50ms")(handle)
    lab.publish_many("t", range(1025))
    lab.advance("1s")
    return over, sizes


@row("D18", ("InvalidArgument", []))
def a_receive_waits_up_to_20_minutes(lab: Lab) -> Any:
    consumer = simple(lab)
    return refused(consumer.receive, wait="20m1s"), consumer.receive(wait=0)


@row("D19", ("InvalidReceiptHandle", "taken", 1))
def a_superseded_receipt_is_refused(lab: Lab) -> Any:
    consumer = simple(lab)
    lab.publish("t", 1)
    message = one(consumer)
    old = message.receipt_handle
    new = consumer.change_invisible_duration(message, "1m")
    answers = refused(consumer.ack, old), refused(consumer.ack, new)
    return *answers, lab.admin.stats("t").topics[0].groups[0].counters["succeed"]


@row("D26", (1, 0, [1]))
def messages_stay_until_they_are_consumed(lab: Lab) -> Any:
    consumer = simple(lab)
    lab.publish("t", 1)
    lab.advance("100d")
    waiting = lab.admin.stats("t").topics[0].stored
    message = one(consumer)
    consumer.ack(message)
    return waiting, lab.admin.stats("t").topics[0].stored, [message.body]


@row("D29", ["InvalidArgument", "InvalidArgument"])
def there_is_no_sql(lab: Lab) -> Any:
    return [refused(simple, lab, tags=tags) for tags in ("price > 10", "a AND b")]


@row("D30", ["delayed", "in a transaction", "of a message group", "plain"])
def one_topic_has_messages_of_every_kind(lab: Lab) -> Any:
    consumer = simple(lab)
    lab.publish("t", "plain")
    lab.publish("t", "delayed", delay="1s")
    lab.publish("t", "of a message group", message_group="x")
    with lab.client.transaction("t") as tx:
        tx.publish("in a transaction")
    lab.advance("1m")
    received = [message for _ in range(2) for message in consumer.receive(wait=0)]
    return sorted(message.body for message in received)


@row("D38", (b"", ""))
def empty_bodies_are_stored(lab: Lab) -> Any:
    consumer = simple(lab)
    found = []
    for body in (b"", ""):
        lab.publish("t", body)
        message = one(consumer)
        consumer.ack(message)
        found.append(message.body)
    return tuple(found)


@row("D40", ([], 1))
def a_delay_is_exact_to_a_millisecond(lab: Lab) -> Any:
    consumer = simple(lab)
    lab.publish("t", 1, delay="1500ms")
    lab.advance("1499ms")
    early = consumer.receive(wait=0)
    lab.advance("1ms")
    return early, one(consumer).body


@row("D42", ["InvalidArgument", "InvalidArgument", "taken"])
def a_tag_has_no_blanks(lab: Lab) -> Any:
    return [refused(lab.publish, "t", 1, tag=tag) for tag in ("a b", "a|b", "a-b.c")]


@row("D44", (True, False, 2))
def an_id_is_remembered_for_an_hour_behind_its_message(lab: Lab) -> Any:
    consumer = simple(lab)
    lab.publish("t", 1, id="order-1")
    consumer.ack(one(consumer))
    lab.advance("59m")
    within = lab.publish("t", 1, id="order-1")
    lab.advance("2m")
    behind = lab.publish("t", 1, id="order-1")
    consumer.ack(one(consumer))
    counters = lab.admin.stats("t").topics[0].groups[0].counters
    return within.duplicate, behind.duplicate, counters["succeed"]


@row("D47", ([], ["here", "there"]))
def a_transaction_has_messages_of_several_topics(lab: Lab) -> Any:
    for name in ("t", "u"):
        lab.admin.create_topic(name)
    both = lab.client.simple_consumer(["t", "u"], group="g", create_group=True)
    with lab.client.transaction("t") as tx:
        tx.publish("here")
        tx.publish("there", topic="u")
        before = both.receive(wait=0)
    lab.advance("1s")
    return before, sorted(message.body for message in both.receive(wait=0))


@row("D51", (True, [1, 2, 1]))
def each_lease_has_a_larger_fencing_token(lab: Lab) -> Any:
    consumer = simple(lab, max_retries=1)
    lab.publish("t", 1)
    leases = [one(consumer, invisible_duration="1s")]
    lab.advance("1s")
    leases.append(one(consumer, invisible_duration="1s"))
    lab.advance("1s")
    lab.admin.redrive("g", all=True)
    leases.append(one(consumer))
    tokens = [message.fencing_token for message in leases]
    return tokens == sorted(set(tokens)), [message.attempt for message in leases]


@pytest.mark.parametrize("number", PROBES)
def test_rqretry_does_what_the_row_states(lab: Lab, number: str) -> None:
    probe, expected = PROBES[number]
    assert probe(lab) == expected
