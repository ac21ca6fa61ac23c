"""A topic that gets more partitions keeps the order of every message group."""

import asyncio
import threading
from collections import defaultdict
from typing import Any

import pytest

from rqretry import Client, ConfigError, OutgoingMessage
from rqretry.catalog import add_partitions
from rqretry.core.errors import RqretryError
from rqretry.core.parts import parts_of
from tests.contract.integration.harness import Lab

NAMES = tuple(f"order-{number}" for number in range(8))


def ordered(client: Client) -> Client:
    """A client of an ordered group, which knows that the topic has one partition."""
    client.admin.create_topic("t")
    consumer = client.simple_consumer("t", group="g", create_group=True, ordered=True)
    client.publish("t", "first", message_group="x")
    consumer.ack(consumer.receive(wait=1))
    return client


def drained(client: Client, **options: Any) -> dict[str | None, list[Any]]:
    """All that there is, by message group in the order of delivery; never two of one at once."""
    consumer = client.simple_consumer("t", group="g", **options)  # finds all partitions as it joins
    found: dict[str | None, list[Any]] = defaultdict(list)
    while received := consumer.receive(32, wait=0):
        names = [message.message_group for message in received]
        assert len(names) == len(set(names)), [m.body for m in received]
        for message in received:
            found[message.message_group].append(message.body)
        consumer.ack(received)
    return found


async def test_a_producer_that_lives_through_growth_keeps_its_message_groups_together(
    lab: Lab,
) -> None:
    producer, other = lab.client(), lab.client()
    ordered(producer)
    other.admin.set_topic("t", partitions=4)

    for number in range(3):
        for name in NAMES:
            producer.publish("t", number, message_group=name)

    assert drained(producer) == {name: [0, 1, 2] for name in NAMES}


async def test_a_topic_that_was_lost_and_came_back_with_more_partitions_is_read_again(
    lab: Lab,
) -> None:
    old, new = lab.client(), lab.client()
    old.admin.create_topic("t")
    old.publish("t", "before")
    lab.redis.flushall()
    new.admin.create_topic("t", 4)

    for client in (new, old):
        for name in NAMES:
            client.publish("t", client is old, message_group=name)

    found = drained(new, create_group=True, ordered=True)
    assert found == {name: [False, True] for name in NAMES}


async def test_a_bulk_that_learns_of_growth_is_sent_to_the_new_partitions(lab: Lab) -> None:
    producer, other = lab.client(), lab.client()
    ordered(producer)
    other.admin.set_topic("t", partitions=4)
    messages = [
        OutgoingMessage(body=number, message_group=name) for number in range(300) for name in NAMES
    ]

    producer.publish_many("t", messages)
    producer.publish("t", 300, message_group=NAMES[0])

    found = drained(producer)
    assert found.pop(NAMES[0]) == list(range(301))
    assert found == {name: list(range(300)) for name in NAMES[1:]}


async def test_publishes_that_wait_in_a_lane_stay_ahead_of_those_behind_growth(lab: Lab) -> None:
    app, client = lab.app(), lab.client()
    ordered(client)
    await app.publish("t", "known", message_group="x")
    assert drained(client) == {"x": ["known"]}
    client.admin.set_topic("t", partitions=4)
    store = parts_of(app.async_client).catalog.store
    tasks: list[asyncio.Task[Any]] = []

    def publish() -> None:
        for name in NAMES:
            number = len(tasks) // len(NAMES)
            tasks.append(asyncio.ensure_future(app.publish("t", number, message_group=name)))

    while store.known["t"].partitions == 1:
        publish()
        await asyncio.sleep(0)
    publish()
    await asyncio.gather(*tasks)

    count = len(tasks) // len(NAMES)
    assert drained(client) == {name: list(range(count)) for name in NAMES}


async def test_a_publish_between_the_last_question_and_the_swap_waits_for_it(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, other = lab.client(), lab.client()
    ordered(producer)
    asked, wait = (
        parts_of(other).catalog.growth.unfinished_ordered,
        parts_of(producer).catalog.growth.wait,
    )
    at_rest = threading.Event()
    questions: list[int] = []

    def publish() -> None:
        producer.publish("t", 0, message_group=NAMES[0])
        at_rest.set()

    publishing = threading.Thread(target=publish)

    def ask(record: Any) -> Any:
        unfinished = yield from asked(record)
        questions.append(unfinished)
        if len(questions) == 3:  # the last one, with the topic closed
            publishing.start()
            assert at_rest.wait(10)
        return unfinished

    def waits(topic: str) -> Any:
        at_rest.set()
        return (yield from wait(topic))

    monkeypatch.setattr(parts_of(other).catalog.growth, "unfinished_ordered", ask)
    monkeypatch.setattr(parts_of(producer).catalog.growth, "wait", waits)

    assert other.admin.set_topic("t", partitions=4).partitions == 4
    publishing.join(10)
    producer.publish("t", 1, message_group=NAMES[0])

    assert set(questions) == {0}
    assert drained(producer) == {NAMES[0]: [0, 1]}


async def test_what_came_before_the_topic_was_closed_is_waited_for_and_then_growth_gives_up(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(add_partitions, "LOOKS_WHILE_CLOSED", 2)
    producer, other = lab.client(), lab.client()
    ordered(producer)
    asked = parts_of(other).catalog.growth.unfinished_ordered
    published: list[str] = []

    def ask(record: Any) -> Any:
        unfinished = yield from asked(record)
        if not published and record.growing:
            published.append(producer.publish("t", 0, message_group=NAMES[0]))
        return unfinished

    monkeypatch.setattr(parts_of(other).catalog.growth, "unfinished_ordered", ask)
    with pytest.raises(ConfigError, match="1 unfinished ordered messages"):
        other.admin.set_topic("t", partitions=4)

    producer.publish("t", 1, message_group=NAMES[0])
    assert [topic.partitions for topic in other.admin.topics()] == [1]
    assert drained(producer) == {NAMES[0]: [0, 1]}
    assert other.admin.set_topic("t", partitions=4).partitions == 4


async def test_a_topic_that_its_operator_left_closed_is_opened_by_a_publisher(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(add_partitions, "LOOKS_BEFORE_OPENING", 2)
    producer, other = lab.client(), lab.client()
    ordered(producer)
    asked = parts_of(other).catalog.growth.unfinished_ordered

    def die(record: Any) -> Any:
        if record.closed:
            raise RqretryError("killed")
        return (yield from asked(record))

    monkeypatch.setattr(parts_of(other).catalog.growth, "unfinished_ordered", die)
    with pytest.raises(RqretryError, match="killed"):
        other.admin.set_topic("t", partitions=4)

    producer.publish("t", 0, message_group=NAMES[0])
    assert drained(producer) == {NAMES[0]: [0]}
    assert lab.client().admin.set_topic("t", partitions=4).partitions == 4
    producer.publish("t", 1, message_group=NAMES[0])
    assert drained(producer) == {NAMES[0]: [1]}


async def test_a_transaction_holds_growth_up_and_one_behind_it_goes_to_the_new_partitions(
    lab: Lab,
) -> None:
    producer, other = lab.client(), lab.client()
    ordered(producer)
    with producer.transaction("t") as transaction:
        transaction.publish(0, message_group=NAMES[0])
        with pytest.raises(ConfigError, match="1 unfinished ordered messages"):
            other.admin.set_topic("t", partitions=4)
    assert drained(producer) == {NAMES[0]: [0]}
    other.admin.set_topic("t", partitions=4)

    with producer.transaction("t") as transaction:
        for name in NAMES:
            transaction.publish(0, message_group=name)
    for name in NAMES:
        producer.publish("t", 1, message_group=name)

    assert drained(producer) == {name: [0, 1] for name in NAMES}
