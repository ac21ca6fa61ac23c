"""Why messages wait for a retry: the commonest of their last errors."""

from collections.abc import Sequence

from rqretry.admin.context import AdminContext
from rqretry.admin.results import Reason, Reasons
from rqretry.core.errors import RqretryError
from rqretry.core.failure_record import read_attempt_record
from rqretry.core.limits import check_count
from rqretry.protocol.command import Each, Operation, batches
from rqretry.protocol.operate import FoundReasons
from rqretry.protocol.operate import reasons as asked

_OF_PARTITION = 20
"""Kinds of errors that each partition names."""


def reasons(
    context: AdminContext, topic: str | None = None, group: str | None = None, *, most: int = 3
) -> Operation[list[Reasons]]:
    """The commonest last errors of what waits for a retry, with one message each.

    Args:
        topic: Of this topic; default all.
        group: Of this group; default all.
        most: How many errors of each group and topic; default 3.

    Returns:
        One for each group and topic where something waits.

    Raises:
        TopicNotFound, GroupNotFound: There is no such topic or group.
    """
    check_count(most, name="most")
    records = yield from context.topics_of(topic, group)
    keys = [
        context.catalog.group_keys(record.name, number, member.name)
        for record in records
        for member in record.members
        if group in (None, member.name)
        for number in range(record.partitions)
    ]
    found: dict[tuple[str, str], list[FoundReasons]] = {}
    for batch in batches(keys):
        answers: Sequence[FoundReasons | RqretryError] = yield Each(
            [asked(key, _OF_PARTITION) for key in batch], seconds=None
        )
        for key, answer in zip(batch, answers, strict=True):
            # What a place refuses is mentioned with its numbers.
            if not isinstance(answer, RqretryError) and answer.waiting:
                found.setdefault((key.partition.topic, key.group), []).append(answer)
    return [_merged(*names, parts, most) for names, parts in found.items()]


def _merged(topic: str, group: str, parts: Sequence[FoundReasons], most: int) -> Reasons:
    kinds: dict[str, Reason] = {}
    for part in parts:
        for count, id_, line in part.kinds:
            error = read_attempt_record(line)
            name = error.fingerprint if error else ""
            known = kinds.get(name)
            total = count + (known.count if known else 0)
            kinds[name] = Reason(name, str(error or ""), total, known.sample_id if known else id_)
    common = sorted(kinds.values(), key=lambda kind: (-kind.count, kind.fingerprint))
    waiting, looked = sum(part.waiting for part in parts), sum(part.looked for part in parts)
    return Reasons(topic, group, waiting, looked, tuple(common[:most]))
