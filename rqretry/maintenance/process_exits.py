"""Which dead letters ended worker processes, by the exit records of those processes.

Where several messages were running, each of them may have been the cause (docs/decisions/0102).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rqretry.core.dead_letter import DeadLetterRecord
from rqretry.core.failure_record import AttemptError, describe_cause, read_attempt_record
from rqretry.protocol.audit_log import Note, exit_records
from rqretry.protocol.command import Operation
from rqretry.protocol.keys import GroupKeys, NamespaceKeys
from rqretry.protocol.lease import Leased

EXPIRED = "expired"
_LATE_MS = 60_000
"""How late the end of a lease may have been noticed."""


def with_exits(
    keys: NamespaceKeys, dead_letters: Sequence[DeadLetterRecord]
) -> Operation[list[DeadLetterRecord]]:
    """The same, where a process ended while it ran an attempt with how it ended.

    Reads nothing where no attempt ended with its lease.
    """
    if not any(error.cause == EXPIRED for dead in dead_letters for error in dead.errors):
        return list(dead_letters)
    exits: list[Note] = yield exit_records(keys)
    return [replace(dead, errors=tuple(_explained(dead, exits))) for dead in dead_letters]


def explain_expired(keys: GroupKeys, leased: Leased, lease_ms: int) -> Operation[Leased]:
    """The same lease; of messages that a dead process was running, with how it ended.

    Reads nothing where no attempt ended with its lease.
    """
    before = [read_attempt_record(line) for line in leased.last_errors]
    if not any(error is not None and error.cause == EXPIRED for error in before):
        return leased
    exits: list[Note] = yield exit_records(NamespaceKeys(keys.partition.namespace))
    lines = list(leased.last_errors)
    for at, (id_, error) in enumerate(zip(leased.ids, before, strict=True)):
        if error is not None and error.cause == EXPIRED:
            theirs = [note for note in exits if _ran(note, keys.partition.topic, keys.group, id_)]
            # What came before is not in the line: an exit of this attempt was within its lease.
            since = error.at_ms - lease_ms - _LATE_MS
            for note in [note for note in theirs if since <= note.at_ms <= error.at_ms][:1]:
                record = describe_cause(EXPIRED, _how(note), note.actor, 0.0)
                attempt, when, _ = lines[at].split(" ", 2)
                lines[at] = f"{attempt} {when} {record}"
    return leased._replace(errors=lines)


def _ran(exit_: Note, topic: str, group: str, id_: str) -> bool:
    return [topic, group, id_] in exit_.arguments.get("ran", ())


def _explained(dead: DeadLetterRecord, exits: Sequence[Note]) -> Iterable[AttemptError]:
    theirs = [note for note in exits if _ran(note, dead.topic, dead.group, dead.id)]
    before_ms = 0
    for error in dead.errors:
        between = [note for note in theirs if before_ms < note.at_ms <= error.at_ms]
        before_ms = error.at_ms
        if error.cause == EXPIRED and between:
            yield replace(error, worker=between[0].actor, message=_how(between[0]))
        else:
            yield error


def _how(exit_: Note) -> str:
    """How a process ended, in a failure record."""
    others = len(exit_.arguments["ran"]) - 1
    beside = f" while it ran this and {others} more" if others else " while it ran this message"
    return f"the worker's process {exit_.arguments['said']}{beside}"
