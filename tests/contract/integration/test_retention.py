"""Dead letters are kept for ever, except where an operator sets a retention."""

import time
from typing import Any

import pytest

from rqretry import InvalidArgument, Message
from rqretry.maintenance.retention import forget_old
from tests.contract.integration.harness import Lab, counted


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
    key = f"rqretry:test:{{t:0}}:group:{group}:dead"
    for id_, since in lab.redis.zrange(key, 0, -1, withscores=True):
        lab.redis.zadd(key, {id_: since - seconds * 1000})


def purge(lab: Lab, group: str = "g") -> int:
    client = lab.client()
    client.store.perform(client.catalog.topics.get("t"))
    keys = client.catalog.group_keys("t", 0, group)
    return client.store.perform(forget_old(client.catalog, [], [keys]))


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
    (letter,) = client.admin.dead_letters("g")[:1]
    age(lab, 3600)
    assert client.admin.set_group("g", dlq_retention="2h").dlq_retention_s == 7200
    assert purge(lab) == 0
    assert client.admin.set_group("g", dlq_retention="30m").dlq_retention_s == 1800
    assert purge(lab) == 1200
    assert lab.stats("g").dead == 0
    last = client.admin.timeline(letter.id)[-1]
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
