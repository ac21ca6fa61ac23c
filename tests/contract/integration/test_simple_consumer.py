"""The simple consumer: receive, ack, change."""

import asyncio
import threading
import time
from typing import Any

import pytest
import redis

from rqretry import (
    AsyncClient,
    Client,
    ConfigError,
    InvalidArgument,
    InvalidReceiptHandle,
    Message,
)
from rqretry.client import SimpleConsumer
from rqretry.core.parts import parts_of
from rqretry.protocol.command import Command
from rqretry.protocol.keys import partition_keys
from rqretry.worker import reaper
from tests.contract.integration.harness import NAMESPACE, Lab, Seen, counted, until


@pytest.fixture
def client(lab: Lab) -> Client:
    """A client with topic t."""
    client = lab.client()
    client.admin.create_topic("t")
    return client


@pytest.fixture
def consumer(client: Client) -> SimpleConsumer:
    """A consumer of group g on topic t, with two deliveries at most."""
    return client.simple_consumer("t", group="g", create_group=True, max_retries=1)


def receive_one(consumer: SimpleConsumer, **options: Any) -> Message[Any]:
    """Receive exactly one message."""
    (message,) = consumer.receive(**{"max_messages": 1, "wait": 5, **options})
    return message


def test_receive_and_ack_commit(lab: Lab, client: Client, consumer: SimpleConsumer) -> None:
    ids = client.publish_many("t", ["a", "b", "c"])

    messages = consumer.receive(2)
    consumer.ack(messages)
    last = receive_one(consumer)
    consumer.ack(last.receipt_handle)

    assert [message.id for message in (*messages, last)] == ids
    assert [message.body for message in messages] == ["a", "b"]
    assert lab.stats("g").counters["succeed"] == 3
    assert client.admin.stats("t").topics[0].stored == 0


def test_a_publish_wakes_a_waiting_receive(client: Client, consumer: SimpleConsumer) -> None:
    got: list[tuple[float, list[Message[Any]]]] = []

    def wait() -> None:
        messages = consumer.receive(wait=20)
        got.append((time.monotonic(), messages))

    thread = threading.Thread(target=wait)
    thread.start()
    while not any(line["cmd"] == "bzpopmin" for line in client_list(client)):
        time.sleep(0.005)
    sent_at = time.monotonic()
    client.publish("t", "wake up")
    thread.join(10)

    ((at, (message,)),) = got
    assert message.body == "wake up"
    assert at - sent_at < 0.5


def client_list(client: Client) -> list[dict[str, Any]]:
    """What the connections of the server do."""
    path = str(parts_of(client).settings.url.redis_kwargs()["path"])
    with redis.Redis(unix_socket_path=path) as direct:
        return list(direct.client_list())


async def made(client: AsyncClient, step: Any) -> Any:
    """What one step of an operation answers."""
    if isinstance(step, Command):
        return await parts_of(client).store.run(step)
    return await parts_of(client).store.run_all(step)


async def test_a_consumer_whose_joining_was_cut_off_anywhere_joins_with_its_next_call(
    lab: Lab, client: Client
) -> None:
    client.simple_consumer("t", group="g", create_group=True)
    stop, cut = 0, True
    async with AsyncClient(lab.url, namespace=NAMESPACE) as other:
        while cut:
            stop += 1
            consumer = other.simple_consumer("t", group="g")
            joining = parts_of(consumer).operations.join()
            step: Any = next(joining)
            for _ in range(stop):
                try:
                    step = joining.send(await made(other, step))
                except StopIteration:
                    cut = False
                    break
            joining.close()
            sent = client.publish("t", stop)
            messages = await consumer.receive(wait=5)
            assert [message.id for message in messages] == [sent]
            await consumer.ack(messages)
    assert stop > 2


def test_an_empty_receive_waits_as_long_as_it_was_reported(consumer: SimpleConsumer) -> None:
    start = time.monotonic()

    assert consumer.receive(wait=0.2) == []

    assert 0.19 <= time.monotonic() - start < 1.0
    assert consumer.receive(wait=0) == []


def test_a_second_ack_is_refused_and_changes_nothing(
    lab: Lab, client: Client, consumer: SimpleConsumer
) -> None:
    client.publish("t", 1)
    message = receive_one(consumer)
    consumer.ack(message)

    with pytest.raises(InvalidReceiptHandle, match=message.id):
        consumer.ack(message)

    assert lab.stats("g").counters["succeed"] == 1


def test_one_bad_receipt_does_not_keep_the_others_from_being_committed(
    lab: Lab, client: Client, consumer: SimpleConsumer
) -> None:
    client.publish_many("t", range(3))
    messages = consumer.receive(3)
    consumer.ack(messages[1])

    with pytest.raises(InvalidReceiptHandle, match=messages[1].id):
        consumer.ack(messages)

    assert lab.stats("g").counters["succeed"] == 3


@pytest.mark.parametrize(
    "handle",
    [
        *("abc", "", "t/0/g/1", "t/x/g/1/id", "t/0/other/1/id", "u/0/g/1/i"),
        *(f"t/{'9' * 5000}/g/1/id", f"t/0/g/{'9' * 5000}/id", "t/\u0660/g/1/id", "t/0/g/\u0661/id"),
    ],
)
def test_a_malformed_or_foreign_receipt_is_refused(consumer: SimpleConsumer, handle: str) -> None:
    with pytest.raises(InvalidReceiptHandle):
        consumer.ack(handle)
    with pytest.raises(InvalidReceiptHandle):
        consumer.change_invisible_duration(handle, 10)


def test_what_is_not_acknowledged_is_back_at_its_deadline_and_the_old_receipt_is_refused(
    client: Client, consumer: SimpleConsumer
) -> None:
    client.publish("t", 1)
    first = receive_one(consumer, invisible_duration=0.3)
    start = time.monotonic()

    second = receive_one(consumer, invisible_duration=30)

    assert time.monotonic() - start >= 0.25
    assert (first.attempt, second.attempt) == (1, 2)
    assert (first.id, first.body) == (second.id, second.body)
    assert second.fencing_token > first.fencing_token
    with pytest.raises(InvalidReceiptHandle):
        consumer.ack(first)
    with pytest.raises(InvalidReceiptHandle):
        consumer.change_invisible_duration(first, 5)
    consumer.ack(second)


def test_an_ack_after_the_deadline_is_refused_although_nobody_else_has_it(
    lab: Lab, client: Client, consumer: SimpleConsumer
) -> None:
    client.publish("t", 1)
    message = receive_one(consumer, invisible_duration="20ms")
    time.sleep(0.03)

    assert message.remaining() == 0
    with pytest.raises(InvalidReceiptHandle):
        consumer.ack(message)
    with pytest.raises(InvalidReceiptHandle):
        consumer.change_invisible_duration(message, 5)
    assert lab.stats("g").retry == 1  # overdue counts as ready


def test_a_changed_duration_makes_a_new_receipt_and_counts_from_the_call(
    client: Client, consumer: SimpleConsumer
) -> None:
    client.publish("t", 1)
    message = receive_one(consumer, invisible_duration=1)
    old = message.receipt_handle

    new = consumer.change_invisible_duration(message, 30)

    assert message.receipt_handle == new != old
    assert 29 < message.remaining() <= 30
    with pytest.raises(InvalidReceiptHandle):
        consumer.ack(old)
    assert consumer.receive(1, wait=1.1) == []  # the old deadline has passed
    consumer.ack(new)


async def test_a_waiting_receive_sees_to_the_last_delivery_of_another_one(
    lab: Lab,
) -> None:
    async with AsyncClient(lab.url, namespace=NAMESPACE) as client:
        await client.admin.create_topic("t")
        consumer = await client.simple_consumer("t", group="g", create_group=True, max_retries=0)
        await client.publish("t", 1)
        (message,) = await consumer.receive(1, "150ms")
        waiting = asyncio.ensure_future(consumer.receive(1, wait=2))
        start = time.monotonic()
        await counted(lab, "g", dead=1)
        assert time.monotonic() - start < 0.15 + 0.5
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        (dead_letter,) = await client.admin.dead_letters("g")

    assert dead_letter.id == message.id


async def test_a_worker_of_another_group_sees_to_it_where_no_consumer_is_left(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaper, "LOOK_EVERY_S", 0.05)
    app = lab.app()

    @app.consumer("t", group="other")
    def handle(message: Message[Any]) -> None:
        """Works on the same topic, in a group of its own."""

    async with AsyncClient(lab.url, namespace=NAMESPACE) as client:
        await client.admin.create_topic("t")
        consumer = await client.simple_consumer("t", group="g", create_group=True, max_retries=0)
        await client.publish("t", 1)
        (message,) = await consumer.receive(1, "20ms")
    dead = partition_keys(NAMESPACE, "t", 0).group("g", 18).dead
    async with lab.working(app):
        await until(lambda: lab.redis.zscore(dead, message.id) is not None)


async def test_eight_consumers_share_the_messages_without_overlap(lab: Lab) -> None:
    async with AsyncClient(lab.url, namespace=NAMESPACE) as client:
        await client.admin.create_topic("t", partitions=2)
        await client.simple_consumer("t", group="g", create_group=True)
        await client.publish_many("t", range(400))

        async def work() -> list[int]:
            consumer, bodies = client.simple_consumer("t", group="g"), []
            while messages := await consumer.receive(7, wait=0):
                bodies += [message.body for message in messages]
                await consumer.ack(messages)
            return bodies

        parts = await asyncio.gather(*(work() for _ in range(8)))

    assert sorted(body for part in parts for body in part) == list(range(400))
    assert lab.stats("g").counters["succeed"] == 400


async def test_a_cancelled_receive_leaves_the_client_usable(lab: Lab) -> None:
    async with AsyncClient(lab.url, namespace=NAMESPACE) as client:
        await client.admin.create_topic("t")
        consumer = await client.simple_consumer("t", group="g", create_group=True)
        waiting = asyncio.ensure_future(consumer.receive(wait=20))
        await asyncio.sleep(0.02)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await client.publish("t", 1)
        (message,) = await consumer.receive(wait=5)
        await consumer.ack(message)


@pytest.mark.parametrize(
    "options",
    [
        {"max_messages": 0},
        {"max_messages": 33},
        {"max_messages": True},
        {"invisible_duration": 0.001},
        {"invisible_duration": "13h"},
        {"invisible_duration": "5 apples"},
        {"wait": -1},
        {"wait": 10**9},
    ],
)
def test_values_outside_their_range_are_refused(
    consumer: SimpleConsumer, options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgument):
        consumer.receive(**{"wait": 0, **options})


def test_a_body_that_cannot_be_decoded_is_dead_and_the_rest_is_received(
    lab: Lab, client: Client, consumer: SimpleConsumer
) -> None:
    bad = client.publish("t", "bad")
    client.publish("t", "good")
    lab.redis.hset("rqretry:test:{t:0}:bodies", bad, b"\xc1")

    (message,) = consumer.receive()

    assert message.body == "good"
    (dead_letter,) = client.admin.dead_letters("g")
    assert (dead_letter.id, dead_letter.cause) == (bad, "undecodable")


def test_several_topics_in_one_group(client: Client) -> None:
    client.admin.create_topic("u", partitions=3)
    consumer = client.simple_consumer(["t", "u"], group="both", create_group=True)
    client.publish("t", 1)
    client.publish_many("u", [2, 3, 4, 5])

    messages = [message for _ in range(4) for message in consumer.receive(wait=0)]

    assert sorted(message.body for message in messages) == [1, 2, 3, 4, 5]
    assert {message.topic for message in messages} == {"t", "u"}
    consumer.ack(messages)


async def test_a_simple_group_beside_a_push_group(lab: Lab) -> None:
    app, seen, client = lab.app(), Seen(), lab.client()
    app.consumer("t", group="push")(seen.add)
    async with lab.working(app):
        consumer = client.simple_consumer("t", group="simple", create_group=True)
        client.publish("t", 1)
        (message,) = await asyncio.to_thread(consumer.receive)
        await seen.count(1)
        await counted(lab, "push", succeed=1)
        assert client.admin.stats("t").topics[0].stored == 1
        consumer.ack(message)
        assert client.admin.stats("t").topics[0].stored == 0
        with pytest.raises(ConfigError):
            client.simple_consumer("t", group="push")


def test_the_group_before_the_topics_is_no_call(lab: Lab, client: Client) -> None:
    for each in (client, lab.app().async_client):
        with pytest.raises(TypeError, match="positional"):
            each.simple_consumer("g", "t")  # type: ignore[call-arg] # that is tested
        with pytest.raises(TypeError, match="'group'"):
            each.simple_consumer("t")  # type: ignore[call-arg] # that is tested
    assert client.admin.groups() == []
