"""Publishers: messages with everything that messages can have, one by one and in transactions."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from rqretry.client import AsyncClient
from rqretry.core.errors import (
    AmbiguousResult,
    ConfigError,
    PublishError,
    QueueFull,
    RqretryError,
    ScriptError,
    StoreUnavailable,
)
from rqretry.core.message import OutgoingMessage
from rqretry.protocol.large_body import LARGE
from tests.model.simulation.calls import require
from tests.model.simulation.clients import client_of
from tests.model.simulation.loop import Process
from tests.model.simulation.plans import TAGS
from tests.model.simulation.processes import PRODUCERS, TOPIC
from tests.model.simulation.world import World

BULKS = (5, 7, 12)
"""Messages of a bulk; a call takes three, so these are up to four calls to one partition."""
_LARGE_SHARE = 0.05
"""Of the messages that are not published in bulk."""


class Author:
    """A publisher; the process after one that was killed goes on with the next message."""

    def __init__(self) -> None:
        self._number = 0
        self._ended = False

    async def publish(self, world: World, process: Process) -> None:
        """Publish what the plan says, spread over the time in which things go wrong."""
        client, plan, chance = client_of(world, process), world.plan, world.chance
        while self._number < plan.messages:
            name = f"{process.name}/message/{self._number}"
            self._number += 1
            gap = chance.one(f"{name}/gap", (0.0, 0.0, 0.1, 0.3, 1.0))
            await asyncio.sleep(0.0 if world.healed else gap)
            if not chance.happens(name, 1.0):
                continue
            if plan.transactions and chance.share(f"{name}/transaction") < 0.4:
                await Together(world, client, name).publish()
            else:
                await _publish(world, client, name)
        if not self._ended:  # one that is killed after its last message begins again
            self._ended = True
            world.unpublished -= 1
        await asyncio.get_running_loop().create_future()


async def publish_backlog(world: World, client: AsyncClient) -> None:
    """Publish many messages, before anything goes wrong."""
    count = world.plan.backlog * world.plan.partitions
    sent = [OutgoingMessage(body={"n": f"backlog/{number}"}) for number in range(count)]
    await _send(world, client, sent, first=False)


def _messages(world: World, name: str, count: int, *, delays: bool) -> list[OutgoingMessage]:
    plan, chance, made = world.plan, world.chance, []
    for index in range(count):
        mine = f"{name}.{index}"
        options: dict[str, Any] = {}
        if any(group.tags != "*" for group in plan.groups):
            options["tag"] = chance.one(f"{mine}/tag", (None, *TAGS))
        if delays and plan.delays and chance.share(f"{mine}/delayed") < 0.4:
            delay = chance.one(f"{mine}/delay", (0.01, 0.5, 2, 6))
            dated = chance.share(f"{mine}/dated") < 0.3
            options["deliver_at" if dated else "delay"] = delay + dated * time.time_ns() / 1e9
        elif plan.message_groups and chance.share(f"{mine}/named") < 0.8:
            number = chance.whole(f"{mine}/name", 1, plan.message_groups)
            options["message_group"] = f"k{number}"
        if plan.own_ids and chance.share(f"{mine}/own id") < 0.5:
            options["id"] = "own-" + mine.replace("/", "-")
        made.append(OutgoingMessage(body=_body(world, mine), **options))
    return made


def _body(world: World, name: str) -> dict[str, str]:
    """A few are large: those reach the server in front of the script that publishes them."""
    large = world.chance.share(f"{name}/large") < _LARGE_SHARE
    return {"n": name, "x": "x" * LARGE} if large else {"n": name}


def _bulk(world: World, name: str) -> list[OutgoingMessage]:
    """Bare messages, whose calls are sent ahead of the answer of the one in front."""
    count = world.chance.one(f"{name}/count", BULKS)
    own = world.plan.own_ids and world.chance.share(f"{name}/own id") < 0.5
    named = [f"{name}.{index}" for index in range(count)]
    return [
        OutgoingMessage(body={"n": n}, id="own-" + n.replace("/", "-") if own else None)
        for n in named
    ]


async def _publish(world: World, client: AsyncClient, name: str) -> None:
    chance = world.chance
    if world.plan.bulks and chance.share(f"{name}/bulk") < 0.5:
        messages = _bulk(world, name)
    else:
        count = chance.one(f"{name}/count", (1, 1, 1, 2, 4))
        messages = _messages(world, name, count, delays=True)
    for attempt in range(3):
        messages = await _send(world, client, messages, first=attempt == 0)
        if not messages or not chance.happens(f"{name}/again {attempt}", 0.7):
            return


async def _send(
    world: World, client: AsyncClient, messages: list[OutgoingMessage], *, first: bool
) -> list[OutgoingMessage]:
    """Publish; those of which nobody knows whether they are stored."""
    ids: Sequence[str] = ()
    restored = world.restored
    try:
        if len(messages) == 1:
            ids = [await client.publish(TOPIC, messages[0])]
        else:
            ids = await client.publish_many(TOPIC, messages)
    except PublishError as error:
        world.accept(error.done, since=restored)
        return _again(messages, error.ambiguous)
    except AmbiguousResult as error:
        return _again(messages, error.ids)
    except ScriptError:  # it was cut, and may have written something
        return messages if all(message.id for message in messages) else []
    except (StoreUnavailable, QueueFull, ConfigError):
        if first:
            world.refused.update(m.id for m in messages if m.id is not None)
        return []
    world.accept(ids, since=restored)
    return []


def _again(messages: list[OutgoingMessage], ids: Sequence[str]) -> list[OutgoingMessage]:
    """The messages that nobody knows about, under the ids that they were sent with."""
    if len(ids) < len(messages):
        return []
    return [
        OutgoingMessage(
            body=m.body,
            tag=m.tag,
            message_group=m.message_group,
            delay=m.delay,
            deliver_at=m.deliver_at,
            id=id_,
        )
        for m, id_ in zip(messages, ids, strict=True)
    ]


class Together:
    """A transaction."""

    def __init__(self, world: World, client: AsyncClient, name: str) -> None:
        self._world, self._name = world, name
        self._transaction = client.transaction(
            TOPIC, producer_group=PRODUCERS, check_after=2, check_every=3
        )

    async def publish(self) -> None:
        """Publish some messages, and commit, roll back, or forget about it."""
        world, chance, name = self._world, self._world.chance, self._name
        messages = _messages(world, name, chance.whole(f"{name}/count", 1, 3), delays=False)
        end = chance.whole(f"{name}/end", 0, 9)
        try:
            ids = [await self._transaction.publish(message) for message in messages]
            if end < 6:
                await self._transaction.commit()
                decided = world.journal.decided.get(self._transaction.id)
                require(
                    decided == "committed" or world.journal.blurred,
                    f"{name} is committed, and {decided}",
                )
                world.accept(ids)
            elif end < 8:
                await self._transaction.rollback()
                decided = world.journal.decided.get(self._transaction.id)
                require(
                    decided == "rolled_back" or world.journal.blurred,
                    f"{name} is rolled back, and {decided}",
                )
        except RqretryError:
            pass
