"""Attempts that were interrupted: whose lease it was that expired, and how that process ended.

An interruption (cause `expired`) is no failure of the handler: nothing was raised. The script that
expires a lease knows neither who held it nor why; the history knows the one, and the supervisor of
that worker wrote the other down (supervision/last_words.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from rqretry.admin.timeline import read_timeline
from rqretry.admin.views import TimelineEvent
from rqretry.catalog.catalog import Catalog
from rqretry.core.dead_letter import DeadLetterRecord
from rqretry.protocol.audit_log import Note, exit_records
from rqretry.protocol.command import Operation

EXPIRED = "expired"


class Interruption(NamedTuple):
    """An attempt of a group that ended with its lease."""

    worker: str
    """Who held the lease; "" where the history does not go back so far."""
    said: str
    """How its process ended, such as "ended with SIGKILL"; "" where nobody saw it."""


def with_interruptions(
    catalog: Catalog, events: Sequence[TimelineEvent]
) -> Operation[list[TimelineEvent]]:
    """A history whose expiries say whose lease it was and how that worker's process ended."""
    found = yield from _interruptions(catalog, events)
    return [
        event
        if (event.group, event.at_ms, event.event) not in found
        else _told(event, found[event.group, event.at_ms, event.event])
        for event in events
    ]


def explained(
    catalog: Catalog, letter: DeadLetterRecord, topic: str, partition: int
) -> Operation[DeadLetterRecord]:
    """A dead letter whose interrupted attempts name their workers, and how these ended."""
    if not any(error.cause == EXPIRED for error in letter.errors):
        return letter
    events = yield from read_timeline(catalog, topic, partition, letter.id, letter.born_ms)
    found = yield from _interruptions(catalog, events)
    errors = []
    for error in letter.errors:
        known = found.get((letter.group, error.at_ms, "expire"))
        if error.cause == EXPIRED and known is not None:
            said = f"the worker's process {known.said}" if known.said else ""
            error = replace(error, worker=known.worker, message=said)  # noqa: PLW2901
        errors.append(error)
    return replace(letter, errors=tuple(errors))


def _interruptions(
    catalog: Catalog, events: Sequence[TimelineEvent]
) -> Operation[Mapping[tuple[str, int, str], Interruption]]:
    """Of each expiry, by group, time and verb: who was interrupted."""
    if not any(event.event == "expire" for event in events):
        return {}
    words: list[Note] = yield exit_records(catalog.keys)
    found: dict[tuple[str, int, str], Interruption] = {}
    leases: dict[str, TimelineEvent] = {}
    for event in events:
        if event.event == "lease":
            leases[event.group] = event
        elif event.event == "expire" and event.group in leases:
            lease = leases[event.group]
            said = _said(words, lease)
            found[event.group, event.at_ms, event.event] = Interruption(lease.worker, said)
    return found


def _said(words: Iterable[Note], lease: TimelineEvent) -> str:
    """The last words of the process that held a lease: the first that it said after it began."""
    process = lease.worker.rpartition(":")[0]
    theirs = [note for note in words if note.actor == process and note.at_ms >= lease.at_ms]
    return str(theirs[-1].arguments.get("said", "")) if theirs else ""


def _told(event: TimelineEvent, known: Interruption) -> TimelineEvent:
    said = f"; its process {known.said}" if known.said else ""
    error = f"the lease of {known.worker} ended before it told a result{said}"
    return replace(event, error=error, note=event.note.replace(event.error, error, 1))
