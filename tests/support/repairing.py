"""The repairs of the auditor on a World: one script each, or all that a look finds to do."""

from rqretry.checks.auditor import examine
from rqretry.checks.repair import Repaired, Site, repair
from rqretry.protocol import repair as repairing
from tests.support.world import World

ACTOR = "ops"


def repair_now(world: World, what: str, *ids: str, group: str = "g") -> list[str]:
    """Make a group's places agree; answers what was changed."""
    return world.run(repairing.repair_places(world.group(group), what, ids, actor=ACTOR)).repaired


def reorder(world: World, what: str, *subjects: str, group: str = "g") -> list[str]:
    """Make lines of an ordered group go on; answers what was changed."""
    return world.run(
        repairing.repair_order(world.group(group), what, subjects, actor=ACTOR)
    ).repaired


def adopt(world: World, *ids: str) -> list[str]:
    """Note who owes these; answers what was changed."""
    groups = [(world.group(group.name), chr(group.byte)) for group in world.route.groups]
    orphans = [repairing.Orphan(id_, "", world.route.targets("")) for id_ in ids]
    return world.run(repairing.repair_owners(world.keys, groups, orphans, actor=ACTOR)).repaired


def tidy(world: World, what: str, *subjects: str) -> list[str]:
    """Forget what is noted of messages that are not there; answers what was changed."""
    return world.run(repairing.repair_orphans(world.keys, what, subjects)).repaired


def repaired(world: World, *, leaving: bool = False) -> list[Repaired]:
    """Look twice as the auditor does, and make right what was found."""
    groups = [world.group(group.name) for group in world.route.groups]
    findings, seen = world.perform(examine(world.keys, groups))
    site = Site(seen, world.route, ACTOR, lambda data: "", leaving=leaving)
    return world.perform(repair(site, findings))
