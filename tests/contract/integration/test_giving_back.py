"""Simple consumers give messages back: one by one, and many at once."""

from typing import Any

import pytest

from rqretry import ConfigError, InvalidArgument, InvalidReceiptHandle, Message
from rqretry.client import SimpleConsumer
from tests.contract.integration.harness import Lab


@pytest.fixture(params=[1, 4])
def giver(lab: Lab, request: pytest.FixtureRequest) -> SimpleConsumer:
    """Of group g on topic t, with three deliveries at most."""
    client = lab.client()
    client.admin.create_topic("t", partitions=request.param)
    return client.simple_consumer("t", group="g", create_group=True, max_retries=2)


def test_messages_that_are_always_given_back_are_dead_after_their_deliveries(
    lab: Lab, giver: SimpleConsumer
) -> None:
    ids = lab.client().publish_many("t", range(8))
    deliveries: list[str] = []
    while messages := giver.receive(32, wait=0):
        assert len(deliveries) < 24, "it is delivered for ever"
        for message in messages:
            deliveries.append(message.id)
            assert message.attempt == deliveries.count(message.id)
            giver.change_invisible_duration(message, 0)

    letters = lab.client().admin.dead_letters("g")
    assert sorted(letter.id for letter in letters) == sorted(ids)
    for letter in letters:
        assert (letter.cause, letter.deliveries) == ("given_back", 3)
        assert [error.cause for error in letter.errors] == ["given_back"] * 3
    assert len({letter.fingerprint for letter in letters}) == 1


def test_an_ordered_simple_group_keeps_its_order_through_giving_back(lab: Lab) -> None:
    client = lab.client()
    client.admin.create_topic("o", partitions=1)
    consumer = client.simple_consumer("o", group="g", create_group=True, ordered=True)
    first, second = (
        client.publish("o", 1, message_group="m"),
        client.publish("o", 2, message_group="m"),
    )
    (message,) = consumer.receive(wait=0)
    consumer.change_invisible_duration(message, 0)
    (message,) = consumer.receive(wait=0)
    assert (message.id, message.attempt) == (first, 2)
    consumer.release(message)
    (message,) = consumer.receive(wait=0)
    assert (message.id, message.attempt) == (first, 2)
    consumer.ack(message)
    (message,) = consumer.receive(wait=0)
    assert message.id == second


def test_an_ack_commits_every_valid_handle_and_names_each_of_the_others(
    lab: Lab, giver: SimpleConsumer
) -> None:
    lab.client().publish_many("t", range(40))
    messages = [message for _ in range(8) for message in giver.receive(32, wait=0)]
    assert len(messages) == 40
    acknowledged, released, *rest = messages
    giver.ack(acknowledged)
    giver.release(released)
    foreign = messages[2].receipt_handle.replace("/g/", "/other/")
    given: list[Any] = [rest[0], "no handle", acknowledged, *rest[1:], foreign, released, rest[0]]

    with pytest.raises(InvalidReceiptHandle, match="4 receipt handles") as raised:
        giver.ack(given)

    reasons = {one.handle: (one.id, one.reason) for one in raised.value.refused}
    assert [one.handle for one in raised.value.refused] == [
        *("no handle", acknowledged.receipt_handle, foreign, released.receipt_handle)
    ]
    assert reasons["no handle"][0] == ""
    assert "malformed" in reasons["no handle"][1]
    assert reasons[foreign][0] == messages[2].id
    assert "belongs to group 'other'" in reasons[foreign][1]
    gone, over = reasons[acknowledged.receipt_handle], reasons[released.receipt_handle]
    assert (gone[0], over[0]) == (acknowledged.id, released.id)
    assert "acknowledged already" in gone[1]
    assert "lease has ended" in over[1]
    assert lab.stats("g").counters["succeed"] == 39


def test_what_is_no_message_and_no_handle_commits_nothing(lab: Lab, giver: SimpleConsumer) -> None:
    lab.client().publish("t", 1)
    (message,) = giver.receive(wait=0)
    with pytest.raises(InvalidArgument, match="message 42 must be a message"):
        giver.ack([message, 42])  # type: ignore[list-item] # that is tested
    for verb in (giver.release, lambda m: giver.change_invisible_duration(m, 0)):
        with pytest.raises(InvalidArgument, match="must be a message or its receipt_handle"):
            verb([message])  # type: ignore[arg-type] # that is tested
    giver.ack(message)


@pytest.mark.parametrize("handle", ["abc", "t/0/other/1/id", "u/0/g/1/id", "t/9/g/1/id"])
def test_a_handle_that_is_forged_releases_nothing(giver: SimpleConsumer, handle: str) -> None:
    with pytest.raises(InvalidReceiptHandle):
        giver.release(handle)


def test_a_handle_of_an_id_that_was_never_leased_is_refused(
    lab: Lab, giver: SimpleConsumer
) -> None:
    id_ = lab.client().publish("t", 1)
    for partition in range(len(lab.client().admin.stats("t").topics)):
        with pytest.raises(InvalidReceiptHandle):
            giver.release(f"t/{partition}/g/1/{id_}")
    assert lab.stats("g").ready == 1


@pytest.mark.parametrize("most", [-1, 1.5, "many", True])
def test_how_often_may_be_released_is_a_whole_number(lab: Lab, most: int) -> None:
    client = lab.client()
    with pytest.raises(InvalidArgument, match="max_postpones"):
        client.simple_consumer("t", group="g", create_group=True, max_postpones=most)


async def test_a_push_group_has_no_simple_consumer_that_releases(lab: Lab) -> None:
    app = lab.app()

    @app.consumer("t", group="g")
    def handle(message: Message[int]) -> None:
        """Its group is push."""

    async with lab.working(app):
        with pytest.raises(ConfigError, match="push"):
            lab.client().simple_consumer("t", group="g", create_group=True)
