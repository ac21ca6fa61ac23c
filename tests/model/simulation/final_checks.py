"""What holds when all is healed, and nothing is left to do."""

from typing import Any

from rqretry.checks.auditor import ERROR, Defect
from rqretry.protocol.command import Command
from rqretry.protocol.keys import partition_keys
from tests.model.model import DEAD
from tests.model.simulation.calls import NAMESPACE, require
from tests.model.simulation.deliveries import check_deaths
from tests.model.simulation.processes import SCHEDULE
from tests.model.simulation.world import World
from tests.support.soundness import findings_of


def audit(world: World) -> None:
    """Look at everything. Raises Broken."""
    _check_stored(world)
    _check_deaths(world)
    if world.knows_slots:
        world.slots.check(world.journal.place(SCHEDULE, 0))
    operation = findings_of(NAMESPACE)
    step: Any = None
    while True:
        try:
            asked = operation.send(step)
        except StopIteration as end:
            found = [finding for finding in end.value if _matters(world, finding)]
            require(not found, f"the auditor found {found}")
            return
        step = None
        if isinstance(asked, Command):
            (reply,) = world.server.call(asked.arguments)
            step = asked.decode(reply)


def _check_stored(world: World) -> None:
    """What was accepted, and nothing that was refused."""
    if not world.observers:
        stored = set().union(*(place.ever for place in world.journal.places.values()))
        lost = world.accepted - stored
        require(not lost, f"accepted, and never stored: {sorted(lost)}")
        wrong = world.refused & stored
        require(not wrong, f"refused for certain, and stored: {sorted(wrong)}")
    seen = set().union(*(observer.ever for observer in world.observers.values()))
    if world.restored and all(group.tags == "*" for group in world.plan.groups):
        lost = world.accepted_since - seen
        require(not lost, f"accepted, and never stored: {sorted(lost)}")


def _check_deaths(world: World) -> None:
    for (topic, number), place in world.journal.places.items():
        for ledger in [] if place.observed else place.routed():
            if ledger.kind != "simple" or not ledger.at(DEAD):
                continue
            key = partition_keys(NAMESPACE, topic, number).group(ledger.name, 0).failures
            (found,) = world.server.call(("HGETALL", key))
            records = [text.decode() for text in found]
            check_deaths(ledger, dict(zip(records[::2], records[1::2], strict=True)))


def _matters(world: World, finding: Defect) -> bool:
    """After a cut there are leftovers, and what was begun and never finished."""
    ours = finding.severity == ERROR and finding.id in world.accepted
    # It is done, and an id was left over; or its transaction came after the snapshot.
    ours = ours and finding.kind not in ("missing body", *["orphan half"] * world.restored)
    return ours or not world.observers
