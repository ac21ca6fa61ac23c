"""Operators, and the upkeep that `rqretry reaper` does."""

import asyncio
from contextlib import suppress

from rqretry.client import AsyncClient
from rqretry.core.errors import RqretryError
from rqretry.core.parts import parts_of
from rqretry.maintenance.upkeep import Upkeep
from rqretry.testing.clock import START_MS
from tests.model.simulation.clients import client_of
from tests.model.simulation.loop import Process
from tests.model.simulation.processes import TOPIC
from tests.model.simulation.world import World

_BY_HAND = 0.15
_ERROR = "e"
"""Some letter of the last error: what never failed is left alone."""
VERBS = (
    "pause",
    "resume",
    "redrive",
    "redrive",
    "spread",
    "promote",
    "purge",
    "purge_list",
    "purge_blocked",
    "limit",
)
_PURGED_SHARE = 0.5
"""Of the accepted messages, those that a purge names."""


async def keep_up(world: World, process: Process) -> None:
    """What `rqretry reaper` does."""
    client = client_of(world, process)
    upkeep = Upkeep(parts_of(client).catalog, process.name)
    while True:
        with suppress(RqretryError):
            await parts_of(client).store.perform(upkeep.round())
        await asyncio.sleep(1.0)


async def grow(world: World, process: Process) -> None:
    """Give the topic more partitions, as soon as its ordered messages allow it."""
    admin = client_of(world, process).admin
    partitions = world.plan.partitions + world.plan.growth
    await asyncio.sleep(world.plan.chaos_s * world.chance.share("grower/after") / 2)
    while not world.healed:
        with suppress(RqretryError):
            await admin.set_topic(TOPIC, partitions=partitions)
            world.network.note("grown")
            break
        await asyncio.sleep(0.05)
    await asyncio.get_running_loop().create_future()


async def operate(world: World, process: Process) -> None:
    """Pause and resume, redrive, purge, promote, and change settings."""
    client = client_of(world, process)
    while not world.healed:
        name = world.chance.numbered("operator/step")
        await asyncio.sleep(2 * world.chance.share(f"{name}/gap"))
        if not world.chance.happens(name, 1.0):
            continue
        with suppress(RqretryError):
            await _operate(world, client, name)
    await asyncio.get_running_loop().create_future()


async def _operate(world: World, client: AsyncClient, name: str) -> None:
    admin, chance = client.admin, world.chance
    group = chance.one(f"{name}/group", world.plan.groups).name
    verb = chance.one(f"{name}/verb", VERBS)
    if world.plan.keep and chance.share(f"{name}/replay") < 0.5:
        gone_s = asyncio.get_running_loop().time()
        to_ms = START_MS + round(1000 * (gone_s - 10 * chance.share(f"{name}/back")))
        world.journal.asked[group] = min(to_ms, world.journal.asked.get(group, to_ms))
        await admin.reset(group, to=to_ms / 1000)
    elif chance.share(f"{name}/by-hand") < _BY_HAND:
        await admin.dead_letter(group, error=_ERROR, reason="by the operator")
    elif verb == "pause":
        await admin.pause(group)
        await asyncio.sleep(2 * chance.share(f"{name}/paused"))
        await admin.resume(group)
    elif verb == "resume":
        await admin.resume(group)
    elif verb == "redrive":
        await admin.redrive(group, all=True)
    elif verb == "spread":
        await admin.redrive(group, all=True, rate="2/s")
    elif verb == "promote":
        await admin.promote(group)
    elif verb.startswith("purge"):
        await _purge(world, client, group, verb, name)
    else:
        await admin.set_group(group, max_retries=chance.whole(f"{name}/limit", 0, 4))


async def _purge(world: World, client: AsyncClient, group: str, verb: str, name: str) -> None:
    """All of a state; or, by their ids, blocked messages and ready ones, whoever is in front."""
    chance = world.chance
    if verb == "purge_blocked":
        accepted = sorted(world.accepted)
        ids = [id_ for id_ in accepted if chance.share(f"{name}/purges {id_}") < _PURGED_SHARE]
        if ids:
            await client.admin.purge(group, ids=ids, state="ready")
        return
    states = ("ready",) if verb == "purge_list" else ("dead", "waiting_retry")
    state = chance.one(f"{name}/state", states)
    await client.admin.purge(group, all=True, state=state)
