"""The processes of a run, by its plan."""

from rqretry.testing.clock import START_MS
from tests.model.simulation.authoring import Author, publish_backlog
from tests.model.simulation.clients import client_of
from tests.model.simulation.final_checks import audit
from tests.model.simulation.handling import Receiver, work
from tests.model.simulation.loop import Process
from tests.model.simulation.operating import grow, keep_up, operate
from tests.model.simulation.plans import LEVELS
from tests.model.simulation.processes import TOPIC
from tests.model.simulation.world import Outcome, World


async def prepare(world: World, process: Process) -> None:
    """Make the topic, at first; and at the end undo what operators have stopped."""
    client = client_of(world, process, LEVELS)
    admin = client.admin
    await admin.create_topic(TOPIC, None if world.healed else world.plan.partitions)
    if world.plan.keep and not world.healed:
        seconds, most = world.plan.keep
        await admin.set_topic(TOPIC, keep=seconds, keep_bytes=most)
    if world.plan.backlog and not world.healed:
        await publish_backlog(world, client)
    if world.healed:
        known = {group.name for group in await admin.groups()}
        for group in world.plan.groups:
            if group.name in known:
                await admin.resume(group.name)


def populate(world: World) -> None:
    """Start all processes."""
    plan = world.plan
    for number in range(plan.workers):
        world.start(f"w{number}", work)
    for group in plan.groups:
        if group.begins_s is not None:
            world.journal.begins[group.name] = START_MS + round(1000 * group.begins_s)
        if group.kind == "simple":
            for number in range(1 + plan.workers // 3):
                world.start(f"{group.name}.{number}", Receiver(group).receive)
    for number in range(plan.publishers):
        world.unpublished += 1
        world.start(f"p{number}", Author().publish)
    if plan.upkeep:
        world.start("upkeep", keep_up)
    if plan.growth:
        world.start("grower", grow)
    if plan.operators:
        world.start("operator", operate)


def run(world: World) -> Outcome:
    """The whole of a run."""
    return world.run(prepare, populate, audit)
