"""fsck: check that all data is consistent, and repair it."""

from collections.abc import Iterator
from dataclasses import asdict

from rqretry.admin.context import AdminContext
from rqretry.admin.results import Checkup, Problem, Repair
from rqretry.catalog.store import CatalogStore
from rqretry.checks.auditor import ERROR, Defect, examine
from rqretry.checks.repair import Repaired, Site, repair
from rqretry.checks.repair_plan import STEPS, advice_of, step_of
from rqretry.core.catalog_records import TopicRecord
from rqretry.core.envelope import decode
from rqretry.core.errors import CodecError
from rqretry.protocol.command import Operation

_IDS_NOTED = 50
"""How many messages of a repair are named in the audit record; all are counted."""

_RESTORE = "restore this field of the hash from a backup; what is in the partitions is not harmed"
_DEFINED_AGAIN = (
    "delete this field of the hash: a worker that declares the schedule defines it again, and no"
    " slot is published twice"
)

NumberedPartition = tuple[TopicRecord, int]


def fsck(context: AdminContext, *, repair: bool = False) -> Operation[Checkup]:
    """Check that indexes, bodies and states agree in every partition of the namespace.

    With `repair`, whatever can be repaired without losing a message is repaired: by one script
    for each kind, which checks again in the same step, so that others may work meanwhile.
    Repeating it changes nothing more, and an interrupted one is completed by the next one. What
    was done is in the audit record.

    Args:
        repair: Repair; by default only check, and say what a repair would do.

    Returns:
        What was found, what was done, and what is left.
    """
    topics = yield from context.catalog.topics.all()
    yield from context.catalog.groups.all()
    partitions = [(topic, number) for topic in topics for number in range(topic.partitions)]
    _, schedules = yield from context.catalog.schedules.all()
    left = list(_damaged(context.catalog.store, schedules))
    problems, repairs = list(left), list[Repair]()
    for partition in partitions:
        defects, site = yield from _examined(context, partition)
        found = _problems(partition, site, defects)
        problems += found
        if repair and any(problem.remedy for problem in found):
            repairs += yield from _repaired(context, partition, site, defects)
            defects, site = yield from _examined(context, partition)
            found = _problems(partition, site, defects)
        left += found
    return Checkup(
        len(partitions), tuple(_errors_first(problems)), tuple(repairs), tuple(_errors_first(left))
    )


def _examined(
    context: AdminContext, partition: NumberedPartition
) -> Operation[tuple[list[Defect], Site]]:
    topic, number = partition
    keys = context.catalog.partition(topic.name, number)
    groups = [context.catalog.group_keys(topic.name, number, g.name) for g in topic.members]
    defects, seen = yield from examine(keys, groups)
    leaving = bool(defects) and (yield from _is_being_left(context, topic.name))
    return defects, Site(seen, topic.route, context.actor, _tag_of, leaving=leaving)


def _damaged(store: CatalogStore, schedules: dict[str, str]) -> Iterator[Problem]:
    """The records of the catalog that could not be read."""
    for key, damaged in (
        (store.keys.topics, store.topics.damaged),
        (store.keys.groups, store.groups.damaged),
        (store.keys.schedules, schedules),
    ):
        for name, text in damaged.items():
            topic = name if key == store.keys.topics else ""
            advice = _DEFINED_AGAIN if key == store.keys.schedules else _RESTORE
            yield Problem(topic, 0, ERROR, "damaged record", key, name, text, advice=advice)


def _is_being_left(context: AdminContext, topic: str) -> Operation[bool]:
    records = yield from context.catalog.groups.all()
    return any(topic in record.leaving for record in records)


def _repaired(
    context: AdminContext, partition: NumberedPartition, site: Site, defects: list[Defect]
) -> Operation[list[Repair]]:
    topic, number = partition
    done: list[Repaired] = yield from repair(site, defects)
    for step, group, ids in done:
        arguments = {
            "repair": step, "topic": topic.name, "partition": number, "group": group or None,
            "ids": ids[:_IDS_NOTED],
        }  # fmt: skip
        yield from context.audit("repair", arguments, {"messages": len(ids)})
    return [Repair(topic.name, number, group, STEPS[step], ids) for step, group, ids in done]


def _problems(partition: NumberedPartition, site: Site, defects: list[Defect]) -> list[Problem]:
    topic, number = partition
    problems = []
    for defect in defects:
        step = step_of(site.seen, defect, leaving=site.leaving)
        advice = "" if step else advice_of(defect)
        remedy = STEPS.get(step, "")
        problems.append(Problem(topic.name, number, **asdict(defect), remedy=remedy, advice=advice))
    return problems


def _errors_first(problems: list[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda p: (p.severity, p.topic, p.partition, p.kind, p.key, p.id))


def _tag_of(data: bytes) -> str:
    try:
        return decode(data).tag or ""
    except CodecError:
        return ""
