"""Simple consumers with many sources: what is old and what is new, everywhere, gets its turn."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from rqretry import Client, Message
from rqretry.client import SimpleConsumer
from rqretry.core.parts import parts_of
from tests.contract.integration.harness import Lab

ONE_PARTITION = 6
"""Receives of 16 that 40 retries, or 40 new messages, take beside a backlog in one partition."""
ONE_OF_100 = 14
"""The same of 100."""


@pytest.fixture
def steady(lab: Lab) -> Client:
    """A client whose consumers begin where the same chance tells them in every run."""
    steady = lab.client()
    parts_of(steady).catalog.chance = random.Random(7)
    return steady


def sources(steady: Client, topics: int, partitions: int) -> list[str]:
    """Topics of a group g, with partitions each."""
    names = [f"t{number}" for number in range(topics)]
    for name in names:
        steady.admin.create_topic(name, partitions=partitions)
    steady.simple_consumer(names, group="g", create_group=True)
    return names


def receives(receive: Callable[[], Sequence[Message[Any]]], wanted: set[str], most: int) -> int:
    """How many receives it takes until all of these were seen."""
    for number in range(1, most + 1):
        wanted -= {message.id for message in receive()}
        if not wanted:
            return number
    pytest.fail(f"{len(wanted)} are not seen in {most} receives")


def received(consumer: SimpleConsumer) -> list[Message[Any]]:
    """What is there now, for a minute."""
    return consumer.receive(16, invisible_duration=60, wait=0)


def anew(steady: Client, names: list[str]) -> list[Message[Any]]:
    """The same by a consumer of its own."""
    with steady.simple_consumer(names, group="g") as consumer:
        return received(consumer)


def filled(steady: Client, names: list[str], count: int) -> list[str]:
    """Publish messages to all topics alike."""
    part = count // len(names)
    return [id_ for name in names for id_ in steady.publish_many(name, range(part))]


def delivered(steady: Client, names: list[str], count: int) -> set[str]:
    """Deliver so many messages once, and give them back."""
    consumer = steady.simple_consumer(names, group="g")
    back: set[str] = set()
    while len(back) < count:
        for message in consumer.receive(min(32, count - len(back)), wait=0):
            consumer.change_invisible_duration(message, 0)
            back.add(message.id)
    return back


SOURCES = [(1, 1), (1, 2), (2, 1), (1, 4), (1, 8), (4, 4)]


@pytest.mark.parametrize("fresh", [False, True], ids=["kept", "anew"])
@pytest.mark.parametrize(("topics", "partitions"), SOURCES)
def test_due_retries_are_seen_behind_a_backlog_of_new_messages(
    steady: Client, topics: int, partitions: int, fresh: bool
) -> None:
    names = sources(steady, topics, partitions)
    filled(steady, names, 40)
    retries = delivered(steady, names, 40)
    filled(steady, names, 2000)
    own = partial(received, steady.simple_consumer(names, group="g"))
    receive = partial(anew, steady, names) if fresh else own
    assert receives(receive, retries, 3 * ONE_PARTITION) <= 3 * ONE_PARTITION


@pytest.mark.parametrize("fresh", [False, True], ids=["kept", "anew"])
@pytest.mark.parametrize(("topics", "partitions"), SOURCES)
def test_new_messages_are_seen_behind_a_backlog_of_retries(
    steady: Client, topics: int, partitions: int, fresh: bool
) -> None:
    names = sources(steady, topics, partitions)
    filled(steady, names, 960)
    delivered(steady, names, 960)
    new = set(filled(steady, names, 40 if topics == 1 else 40 // topics * topics))
    own = partial(received, steady.simple_consumer(names, group="g"))
    receive = partial(anew, steady, names) if fresh else own
    assert receives(receive, new, 3 * ONE_PARTITION) <= 3 * ONE_PARTITION


@pytest.mark.campaign
@pytest.mark.parametrize("fresh", [False, True], ids=["kept", "anew"])
@pytest.mark.parametrize("partitions", [1, 2, 4, 8, 16])
def test_forty_retries_are_seen_behind_20000_new_messages(
    steady: Client, partitions: int, fresh: bool
) -> None:
    names = sources(steady, 1, partitions)
    filled(steady, names, 40)
    retries = delivered(steady, names, 40)
    filled(steady, names, 20_000)
    own = partial(received, steady.simple_consumer(names, group="g"))
    receive = partial(anew, steady, names) if fresh else own
    took = receives(receive, retries, 3 * ONE_PARTITION)
    print(f"{partitions} places, {took} receives")  # noqa: T201 - what a campaign is for


@pytest.mark.campaign
@pytest.mark.parametrize("fresh", [False, True], ids=["kept", "anew"])
@pytest.mark.parametrize("partitions", [1, 2, 4, 8, 16])
def test_a_hundred_new_messages_are_seen_behind_10000_retries(
    steady: Client, partitions: int, fresh: bool
) -> None:
    names = sources(steady, 1, partitions)
    filled(steady, names, 10_000)
    own = steady.simple_consumer(names, group="g")
    out = [message for _ in range(10_000 // 32 * 2) for message in own.receive(32, 600, wait=0)]
    assert len(out) == 10_000
    for message in out:
        own.change_invisible_duration(message, 0)
    new = set(filled(steady, names, 100))
    receive = partial(anew, steady, names) if fresh else partial(received, own)
    took = receives(receive, new, 3 * ONE_OF_100)
    print(f"{partitions} places, {took} receives")  # noqa: T201 - what a campaign is for


def test_retries_of_one_source_wait_no_longer_beside_many(steady: Client) -> None:
    names = sources(steady, 8, 1)
    filled(steady, names[3:4], 40)
    retries = delivered(steady, names[3:4], 40)
    filled(steady, names, 2400)
    receive = partial(received, steady.simple_consumer(names, group="g"))
    assert receives(receive, retries, 3 * ONE_PARTITION) <= 3 * ONE_PARTITION


def test_what_is_due_is_moved_in_all_sources_at_once(lab: Lab, steady: Client) -> None:
    names = sources(steady, 1, 8)
    due = set(filled(steady, names, 40))
    consumer = steady.simple_consumer(names, group="g")
    for message in [m for _ in range(8) for m in received(consumer)]:
        consumer.change_invisible_duration(message, "10ms")
    filled(steady, names, 2000)
    own = partial(received, steady.simple_consumer(names, group="g"))
    assert receives(own, due, 3 * ONE_PARTITION) <= 3 * ONE_PARTITION
    assert lab.stats("g").retry == 0


def test_each_source_of_a_lane_gets_as_many_turns(steady: Client) -> None:
    names = sources(steady, 4, 1)
    filled(steady, names, 1600)
    consumer = steady.simple_consumer(names, group="g")
    turns = Counter(message.topic for _ in range(40) for message in received(consumer))
    assert turns == dict.fromkeys(names, 160)


def test_what_few_of_very_many_sources_have_is_found_beside_the_others(steady: Client) -> None:
    names = sources(steady, 1, 100)
    filled(steady, names, 300)
    new = set(filled(steady, names, 100))
    receive = partial(received, steady.simple_consumer(names, group="g"))
    assert receives(receive, new, 60) <= 60


def test_a_consumer_that_is_made_anew_begins_anywhere(steady: Client) -> None:
    names = sources(steady, 4, 1)
    filled(steady, names, 4000)
    first = Counter(anew(steady, names)[0].topic for _ in range(80))
    assert sorted(first) == names
    assert min(first.values()) >= 8, first
