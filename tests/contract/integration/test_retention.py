"""What is kept for a time is gone within a minute of its end, at whatever rate it came."""

import time
from typing import Any

import pytest

from rqretry import InvalidArgument, Message, OutgoingMessage
from rqretry.core.parts import parts_of
from rqretry.maintenance.retention import Sweeps
from rqretry.maintenance.upkeep import Upkeep
from tests.contract.integration.harness import Lab, counted, until


async def dead_letter(lab: Lab, count: int, group: str = "g") -> None:
    app = lab.app()

    @app.consumer("t", group=group, max_retries=0)
    async def handle(message: Message[Any]) -> None:
        raise ValueError("no")

    async with lab.working(app):
        await app.publish_many("t", range(count))
        await counted(lab, group, dead=count)


def age(lab: Lab, seconds: float, group: str = "g") -> None:
    """Make the dead letters of a group older."""
    key = f"rqretry:test:{{t:0}}:group:{group}:"
    for id_, since in lab.redis.zrange(f"{key}dead", 0, -1, withscores=True):
        lab.redis.zadd(f"{key}dead", {id_: since - seconds * 1000})
    for member in lab.redis.zrange(f"{key}fingerprints", 0, -1):
        fingerprint, since, id_ = member.split(b"\0")
        older = b"%s\0%016d\0%s" % (fingerprint, int(since) - seconds * 1000, id_)
        lab.redis.zrem(f"{key}fingerprints", member)
        lab.redis.zadd(f"{key}fingerprints", {older: 0})


def purge(lab: Lab) -> int:
    client = lab.client()
    sweeps, gone = Sweeps(parts_of(client).catalog.topics, parts_of(client).catalog.group_keys), 0
    while time.monotonic() >= sweeps.next_at:
        gone += parts_of(client).store.perform(
            sweeps.round([parts_of(client).catalog.partition("t", 0)])
        )
    return gone


async def test_by_default_a_dead_letter_is_kept_for_ever(lab: Lab) -> None:
    await dead_letter(lab, 3)
    age(lab, 10 * 365 * 86_400)
    assert purge(lab) == 0
    assert lab.stats("g").dead == 3


async def test_with_a_retention_the_older_ones_are_purged_and_the_history_says_so(
    lab: Lab,
) -> None:
    client = lab.client()
    await dead_letter(lab, 1200)
    (dead_record,) = client.admin.dead_letters("g")[:1]
    age(lab, 3600)
    assert client.admin.set_group("g", dlq_retention="2h").dlq_retention_s == 7200
    assert purge(lab) == 0
    assert client.admin.set_group("g", dlq_retention="30m").dlq_retention_s == 1800
    assert purge(lab) == 1200
    assert lab.stats("g").dead == 0
    last = client.admin.timeline(dead_record.id)[-1]
    assert (last.event, last.group, last.worker) == ("purge", "g", "retention")
    assert abs(last.at_ms / 1000 - time.time()) < 60
    assert client.admin.audit(1)[0].arguments["dlq_retention_ms"] == "1800000"


async def test_a_retention_is_taken_back(lab: Lab) -> None:
    client = lab.client()
    await dead_letter(lab, 1)
    client.admin.set_group("g", dlq_retention="1m")
    client.admin.set_group("g", max_retries=3)
    assert client.admin.group("g").dlq_retention_s == 60
    assert client.admin.set_group("g", dlq_retention=None).dlq_retention_s is None
    age(lab, 3600)
    assert purge(lab) == 0


@pytest.mark.parametrize("value", ["59s", -1, "soon", 10**9])
async def test_a_retention_out_of_range_is_refused(lab: Lab, value: Any) -> None:
    client = lab.client()
    client.publish("t", 1)
    client.simple_consumer("t", group="s", create_group=True)
    with pytest.raises(InvalidArgument, match="dlq_retention"):
        client.admin.set_group("s", dlq_retention=value)


IDS = 3000
"""Six times what one call forgets."""


def remember(lab: Lab) -> None:
    """Ids of callers whose messages were handled more than an hour ago."""
    client = lab.client()
    client.publish("t", 0)
    simple = client.simple_consumer("t", group="s", create_group=True)
    client.publish_many("t", [OutgoingMessage(body=n, id=f"order-{n}") for n in range(IDS)])
    while messages := simple.receive(32, wait=0):
        simple.ack(messages)
    over = {f"order-{n}": 1000 + n for n in range(IDS)}
    assert lab.redis.zadd("rqretry:test:{t:0}:id_expiry", over, xx=True, ch=True) == IDS


def remembered(lab: Lab) -> int:
    return int(lab.redis.hlen("rqretry:test:{t:0}:ids"))


async def test_a_worker_forgets_ids_as_fast_as_they_came(lab: Lab) -> None:
    remember(lab)
    app = lab.app()

    @app.consumer("t", group="g")
    async def handle(message: Message[Any]) -> None: ...

    async with lab.working(app):
        await until(lambda: remembered(lab) == 0)


async def test_a_group_of_simple_consumers_forgets_ids_and_applies_its_retention(lab: Lab) -> None:
    remember(lab)
    client = lab.client()
    client.admin.set_group("s", max_retries=0, dlq_retention="1h")
    client.publish("t", "bad")
    simple = client.simple_consumer("t", group="s")
    assert simple.receive(invisible_duration=0.01)
    await until(lambda: lab.expire("t", "s") == 1)
    age(lab, 3600, "s")
    for _ in range(IDS // 500):
        client.simple_consumer("t", group="s").receive(wait=0)
    assert remembered(lab) == 0
    assert lab.stats("s").dead == 0


async def test_a_round_of_the_reaper_forgets_what_is_over(lab: Lab) -> None:
    remember(lab)
    client = lab.client()
    upkeep = Upkeep(parts_of(client).catalog, parts_of(client).name)
    while parts_of(client).store.perform(upkeep.round()).more:
        pass
    assert remembered(lab) == 0


@pytest.mark.parametrize("together", [True, False])
def test_what_was_consumed_is_forgotten_where_nothing_else_is_kept(
    lab: Lab, *, together: bool
) -> None:
    client = lab.client()
    client.admin.create_topic("t")
    client.admin.set_topic("t", keep="24h")
    receiver = client.simple_consumer("t", group="s", create_group=True)
    client.publish("t", "x")
    receiver.ack(receiver.receive())
    client.admin.set_topic("t", keep=None)
    place = parts_of(client).catalog.group_keys("t", 0, "s")
    sweeps = Sweeps(
        parts_of(client).catalog.topics, parts_of(client).catalog.group_keys, together=together
    )
    assert lab.redis.exists(place.partition.kept, place.consumed) == 2
    parts_of(client).store.perform(sweeps.round([place.partition]))
    assert lab.redis.exists(place.partition.kept, place.partition.kept_bodies, place.consumed) == 0
