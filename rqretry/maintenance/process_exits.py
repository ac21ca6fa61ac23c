"""Which dead letters ended worker processes, by the exit records of those processes.

Where several messages were running, each of them may have been the cause (docs/decisions/0102).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rqretry.core.dead_letter import DeadLetterRecord
from rqretry.core.failure_record import AttemptError
from rqretry.protocol.audit_log import Note, exit_records
from rqretry.protocol.command import Operation
from rqretry.protocol.keys import NamespaceKeys

EXPIRED = "expired"


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


def _explained(dead: DeadLetterRecord, exits: Sequence[Note]) -> Iterable[AttemptError]:
    named = [dead.topic, dead.group, dead.id]
    theirs = [note for note in exits if named in note.arguments.get("ran", ())]
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
