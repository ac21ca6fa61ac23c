"""deliver_at: messages for a date, by the server's clock."""

import math
import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from rqretry import InvalidArgument, Message, MessageNotFound, OutgoingMessage
from tests.contract.integration.harness import Lab, Seen, until

DAY_S = 86_400


def in_seconds(seconds: float) -> datetime:
    return datetime.fromtimestamp(time.time() + seconds, UTC)


def server_ms(lab: Lab) -> float:
    seconds, micros = lab.redis.time()
    return float(seconds * 1000 + micros / 1000)


def due_ms(lab: Lab, id_: str) -> float:
    """The millisecond of a date: its score is a fraction of one less."""
    return math.ceil(float(lab.redis.zscore("rqretry:test:{t:0}:scheduled", id_)))


async def test_a_message_is_delivered_at_its_date(lab: Lab) -> None:
    app, seen = lab.app(), Seen()

    @app.consumer("t", group="g")
    async def handle(message: Message[Any]) -> None:
        seen.add(message)

    async with lab.working(app):
        date = in_seconds(0.4)
        await app.publish("t", "later", deliver_at=date)
        await app.publish("t", "now")
        await seen.count(2)
        arrived = time.time()

    assert seen.bodies == ["now", "later"]
    assert arrived >= date.timestamp() - 0.01


async def test_a_date_is_kept_to_the_millisecond_however_it_is_reported(lab: Lab) -> None:
    client = lab.client()
    date = datetime.fromtimestamp(int(time.time()) + DAY_S + 0.125, UTC)
    elsewhere = date.astimezone(tz=timezone(timedelta(hours=5, minutes=30)))

    recorded: list[Any] = [date, elsewhere, date.timestamp()]
    ids = [client.publish("t", n, deliver_at=one) for n, one in enumerate(recorded)]
    ids += client.publish_many("t", [OutgoingMessage(body=9, deliver_at=date)])

    assert {due_ms(lab, id_) for id_ in ids} == {date.timestamp() * 1000}


async def test_a_date_that_is_past_is_no_delay(lab: Lab) -> None:
    client = lab.client()
    client.publish("t", 1, deliver_at=in_seconds(-5))
    client.publish("t", 2, deliver_at=0)
    stats = client.admin.stats("t").topics[0]
    assert (stats.backlog, stats.scheduled) == (2, 0)


async def test_forty_days_are_allowed_and_more_are_not(lab: Lab) -> None:
    client = lab.client()
    client.publish("t", 1, deliver_at=in_seconds(40 * DAY_S - 5))
    with pytest.raises(InvalidArgument, match="it must be at most 40 d ahead"):
        client.publish("t", 1, deliver_at=in_seconds(40 * DAY_S + 5))
    assert client.admin.stats("t").topics[0].scheduled == 1


@pytest.mark.parametrize(
    ("value", "recorded"),
    [
        (datetime(2040, 1, 1), "has no time zone: use an aware datetime"),  # noqa: DTZ001
        ("2040-01-01T00:00:00Z", "must be an aware datetime, or seconds since the epoch"),
        (True, "must be an aware datetime"),
        (float("nan"), "must be an aware datetime"),
        (1e15, "must be an aware datetime"),
    ],
)
async def test_what_is_no_date_is_refused_before_anything_is_written(
    lab: Lab, value: Any, recorded: str
) -> None:
    client = lab.client()
    with pytest.raises(InvalidArgument, match=recorded):
        client.publish("t", 1, deliver_at=value)
    assert client.admin.topics() == []


@pytest.mark.parametrize(
    "ways",
    [
        {"delay": 1, "deliver_at": 2_000_000_000},
        {"delay_level": 1, "deliver_at": 2_000_000_000},
        {"delay": 1, "delay_level": 1},
    ],
)
async def test_at_most_one_way_to_say_when_is_taken(lab: Lab, ways: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="cannot be given with"):
        lab.client().publish("t", 1, **ways)


async def test_a_message_for_a_date_can_be_recalled_until_it_is_due(lab: Lab) -> None:
    client = lab.client()
    early = client.publish("t", 1, deliver_at=in_seconds(60))
    assert client.recall(early) is True
    with pytest.raises(MessageNotFound):
        client.recall(early)
    late = client.publish("t", 2, deliver_at=in_seconds(0.05))
    at_ms = due_ms(lab, late)
    await until(lambda: server_ms(lab) >= at_ms)
    assert client.recall(late) is False
