"""A topic that got more partitions: what an ordered group consumed, or has as dead letters."""

from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

import pytest

from rqretry import Client, ConfigError, InvalidArgument
from rqretry.core.catalog_records import TopicRecord
from rqretry.core.parts import parts_of
from tests.contract.integration.harness import Lab
from tests.contract.integration.test_growth_order import NAMES, drained, ordered

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def publish(client: Client, *numbers: int) -> None:
    for number in numbers:
        for name in NAMES:
            client.publish("t", number, message_group=name)


def of_each(*numbers: int) -> dict[str | None, list[Any]]:
    return {name: list(numbers) for name in NAMES}


async def test_what_was_consumed_before_growth_is_not_replayed_beside_what_is_published_now(
    lab: Lab,
) -> None:
    client = ordered(lab.client())
    client.admin.set_topic("t", keep="24h")
    publish(client, 1, 2)
    drained(client)
    assert client.admin.reset("g", to=LONG_AGO) == 2 * len(NAMES)
    with pytest.raises(ConfigError, match="16 unfinished ordered messages"):
        client.admin.set_topic("t", partitions=4)
    assert drained(client) == of_each(1, 2)
    client.admin.set_topic("t", partitions=4)
    now = datetime.now(UTC)
    publish(client, 3, 4)
    drained(client)

    for dry_run in (True, False):
        with pytest.raises(InvalidArgument, match=r"2020-01-01T.*: topic .t. got more partitions"):
            client.admin.reset("g", to=LONG_AGO, dry_run=dry_run)
    assert drained(client) == {}
    assert client.admin.reset("g", to=now) == 2 * len(NAMES)
    publish(client, 5)
    assert drained(client) == of_each(3, 4, 5)


async def test_nothing_is_replayed_between_the_last_question_of_growth_and_the_swap(
    lab: Lab,
) -> None:
    client = ordered(lab.client())
    client.admin.set_topic("t", keep="24h")
    publish(client, 1)
    drained(client)
    catalog = parts_of(client).catalog
    store = parts_of(client).store
    store.perform(catalog.store.topics.change("t", lambda old: old.growing_to(4)))
    store.perform(catalog.store.topics.change("t", TopicRecord.close))

    with pytest.raises(ConfigError, match=r"topic .t. is being changed; repeat this"):
        client.admin.reset("g", to=LONG_AGO)

    assert drained(client) == {}
    client.admin.set_topic("t", partitions=4)
    publish(client, 2)
    assert drained(client) == of_each(2)


async def test_a_dead_letter_from_before_growth_is_redriven_and_blocks_nothing(lab: Lab) -> None:
    client = ordered(lab.client())
    publish(client, 1)
    assert client.admin.dead_letter("g", reason="no stock", all=True) == len(NAMES)
    client.admin.set_topic("t", partitions=4)
    publish(client, 2)

    client.admin.redrive("g", all=True)

    consumer = client.simple_consumer("t", group="g")
    found: dict[str | None, list[Any]] = defaultdict(list)
    while received := consumer.receive(32, wait=0):
        for message in received:
            found[message.message_group].append(message.body)
        consumer.ack(received)
    assert {name: sorted(bodies) for name, bodies in found.items()} == of_each(1, 2)
    client.admin.set_topic("t", partitions=5)
