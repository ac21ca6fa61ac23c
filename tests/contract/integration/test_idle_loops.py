"""What is lost or gone costs a bounded number of commands, and no loop spins on it."""

from collections.abc import Callable
from typing import Any

import pytest

from rqretry import Client
from rqretry.catalog import drain_group
from rqretry.core.parts import parts_of
from rqretry.protocol.keys import partition_keys
from rqretry.worker import partition_watch
from tests.contract.integration.harness import NAMESPACE, Lab, Seen, until

MOST = 300
"""Commands that a call or a worker may send in all of a test."""


def limited(client: Client) -> list[str]:
    """Let a client send so many commands, and then no more; what it has sent."""
    run = parts_of(client).store.session.run
    sent: list[str] = []

    def counted(command: Any, seconds: float | None = None) -> Any:
        sent.append(command.verb)
        assert len(sent) < MOST, "it spins"
        return run(command, seconds)

    parts_of(client).store.session.run = counted  # type: ignore[method-assign]
    return sent


@pytest.mark.parametrize(
    "end",
    [
        lambda client: client.admin.delete_group("g"),
        lambda client: client.admin.unsubscribe("g", "t"),
        lambda client: client.admin.delete_topic("t", force=True),
    ],
    ids=["delete_group", "unsubscribe", "delete_topic"],
)
async def test_a_group_with_a_lost_message_is_removed(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, end: Callable[[Client], int]
) -> None:
    monkeypatch.setattr(drain_group, "LONGEST_PAUSE_S", 0.001)
    client = lab.client()
    client.admin.create_topic("t")
    client.simple_consumer("t", group="g", create_group=True, ordered=True)
    for number in range(3):
        client.publish("t", number, message_group="a")
    keys = parts_of(client).catalog.group_keys("t", 0, "g")
    lab.redis.delete(keys.ready)  # the first one is nowhere, and the others wait behind it

    limited(client)
    end(client)

    assert not lab.redis.exists(keys.order, keys.heads, keys.config)


async def test_a_worker_leaves_the_partitions_that_a_topic_no_longer_has(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_watch, "LOOK_EVERY_S", 0.2)
    app, client, seen = lab.app(), lab.client(), Seen()
    client.admin.create_topic("t", partitions=4)
    app.consumer("t", group="g")(seen.add)
    async with lab.working(app) as worker:
        await until(lambda: len(worker.places) == 4)
        lab.redis.flushall()
        lab.client().admin.create_topic("t", partitions=1)
        before = lab.redis.info("stats")["total_commands_processed"]

        await until(lambda: [place.partition for place in worker.places] == [0])
        lab.client().publish("t", "again")
        await seen.count(1)

        executed = lab.redis.info("stats")["total_commands_processed"] - before
    assert executed < 10 * MOST
    gone = partition_keys(NAMESPACE, "t", 3)
    assert not lab.redis.hexists(gone.meta, "route")
