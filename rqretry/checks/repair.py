"""Repairing what the auditor found in a partition: `rqretry fsck --repair`.

The auditor read the partition page by page while others worked on it, so every script checks again,
atomically with what it writes, and leaves alone what is right by then. Repeating a repair changes
nothing more, and one that was interrupted is completed by the next.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from rqretry.checks.defect import Defect
from rqretry.checks.repair_plan import STEPS, Task, step_of, tasks_of
from rqretry.checks.snapshot import Snapshot
from rqretry.core.route import Route
from rqretry.protocol.command import MAX_BATCH, Command, Operation
from rqretry.protocol.inspect import read_body
from rqretry.protocol.repair import (
    Orphan,
    RepairReply,
    repair_order,
    repair_orphans,
    repair_owners,
    repair_places,
)

T = TypeVar("T")

_BODIES_AT_ONCE = 20


class Repaired(NamedTuple):
    """The messages of a partition that one repair changed."""

    step: str
    group: str
    """"" if it concerns no group."""
    ids: tuple[str, ...]
    """Messages; of "repair index", delay levels."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where to repair, and for whom.

    Attributes:
        seen: The partition as the auditor saw it.
        route: The groups of the topic as the catalog knows them.
        actor: Who repairs, for the history.
        tag_of: The tag in message bytes; "" for none, or where they cannot be read.
        leaving: A group is leaving the topic.
    """

    seen: Snapshot
    route: Route
    actor: str
    tag_of: Callable[[bytes], str]
    leaving: bool = False


def repair(site: Site, defects: Sequence[Defect]) -> Operation[list[Repaired]]:
    """Repair what can be repaired; answers what was changed.

    Args:
        site: Where they were found.
        defects: What to repair; those that need a person are skipped.
    """
    tasks = list(dict.fromkeys(_tasks(site, defects)))
    done: list[Repaired] = []
    for step in STEPS:
        wanted = [task for task in tasks if task.step == step]
        if step == "adopt":
            adopted = yield from _adopt(site, list(dict.fromkeys(task.id for task in wanted)))
            done += [Repaired(step, "", tuple(adopted))] if adopted else []
            tasks += [
                Task("repair put_back", group.keys.group, id_, id_)
                for group in site.seen.groups
                for id_ in adopted
                if not group.keys.source
            ]
        else:
            for group in dict.fromkeys(task.group for task in wanted):
                ours = [task for task in wanted if task.group == group]
                done += yield from _step(site, step, group, ours)
    return done


def _tasks(site: Site, defects: Sequence[Defect]) -> Iterator[Task]:
    for defect in defects:
        step = step_of(site.seen, defect, leaving=site.leaving)
        if step:
            yield from tasks_of(site.seen, defect, step)


def _step(site: Site, step: str, group: str, tasks: Sequence[Task]) -> Operation[list[Repaired]]:
    verb, what = step.split(" ")
    subjects = list(dict.fromkeys(task.subject for task in tasks))
    if verb == "tidy":
        repaired = yield from _tidied(site, what, subjects)
    else:
        keys = next(seen.keys for seen in site.seen.groups if seen.keys.group == group)
        call = repair_places if verb == "repair" else repair_order
        repaired = yield from _all(
            [] if what == "index" else subjects,
            lambda some: call(keys, what, some, actor=site.actor),
        )
    id_of = {task.subject: task.id for task in tasks}
    ids = tuple(dict.fromkeys(id_of.get(subject, subject) for subject in repaired))
    return [Repaired(step, group, ids)] if ids else []


def _all(
    rest: Sequence[T], make: Callable[[Sequence[T]], Command[RepairReply]]
) -> Operation[list[str]]:
    """Call until all are checked; without any, once. What takes too long to look for is left."""
    repaired: list[str] = []
    while True:
        answer: RepairReply = yield make(rest[:MAX_BATCH])
        repaired += answer.repaired
        rest = rest[answer.looked or 1 :]
        if not rest:
            return repaired


def _tidied(site: Site, what: str, subjects: Sequence[str]) -> Operation[list[str]]:
    return (
        yield from _all(
            _rows(site, what, subjects),
            lambda some: repair_orphans(site.seen.keys, what, [v for row in some for v in row]),
        )
    )


def _rows(site: Site, what: str, subjects: Sequence[str]) -> list[tuple[str, ...]]:
    """The arguments of lua/repair_orphans.lua for each."""
    if what == "half":
        return [(id_, site.seen.half_of.get(id_, "")) for id_ in subjects]
    if what == "halves":
        return [(member.split(" ")[2], member) for member in subjects if member.count(" ") > 1]
    return [(subject,) for subject in subjects]


def _adopt(site: Site, ids: Sequence[str]) -> Operation[list[str]]:
    groups = [
        (group.keys, chr(other.byte))
        for group in site.seen.groups
        for other in site.route.groups
        if group.keys.group == other.name
    ]
    everybody = "".join(byte for _, byte in groups).encode("latin-1")
    orphans: list[Orphan] = []
    for at in range(0, len(ids), _BODIES_AT_ONCE):
        some = ids[at : at + _BODIES_AT_ONCE]
        bodies: list[Any] = yield [read_body(site.seen.keys, id_) for id_ in some]
        for id_, data in zip(some, bodies, strict=True):
            tag = site.tag_of(data) if data else ""
            orphans.append(Orphan(id_, tag, site.route.targets(tag) or everybody))
    if not orphans:
        return []
    return (
        yield from _all(
            orphans, lambda some: repair_owners(site.seen.keys, groups, some, actor=site.actor)
        )
    )
