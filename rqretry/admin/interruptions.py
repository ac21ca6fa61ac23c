"""Attempts that were interrupted: whose lease it was that expired, and how that process ended.

An interruption (cause `expired`) is not a failure of the handler: nothing was raised. The script
that expires a lease knows neither who held it nor why it ended. The history has the worker, and
that worker's supervisor recorded how the process ended (supervision/exit_records.py).
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
    """An attempt that ended because its lease expired."""

    worker: str
    """Who held the lease; "" if the history does not go back that far."""
    exit: str
    """How its process ended, such as "ended with SIGKILL"; "" if unknown."""


def with_interruptions(
    catalog: Catalog, events: Sequence[TimelineEvent]
) -> Operation[list[TimelineEvent]]:
    """The history, with the worker of each expired lease and how its process ended."""
    found = yield from _interruptions(catalog, events)
    return [
        event
        if (event.group, event.at_ms, event.event) not in found
        else _explained(event, found[event.group, event.at_ms, event.event])
        for event in events
    ]


def explained(
    catalog: Catalog, dead_letter: DeadLetterRecord, topic: str, partition: int
) -> Operation[DeadLetterRecord]:
    """The dead letter, with the worker of each interrupted attempt and how its process ended."""
    if not any(error.cause == EXPIRED for error in dead_letter.errors):
        return dead_letter
    events = yield from read_timeline(
        catalog, topic, partition, dead_letter.id, dead_letter.born_ms
    )
    found = yield from _interruptions(catalog, events)
    errors = []
    for error in dead_letter.errors:
        known = found.get((dead_letter.group, error.at_ms, "expire"))
        if error.cause == EXPIRED and known is not None:
            how = f"the worker's process {known.exit}" if known.exit else ""
            error = replace(error, worker=known.worker, message=how)  # noqa: PLW2901
        errors.append(error)
    return replace(dead_letter, errors=tuple(errors))


def _interruptions(
    catalog: Catalog, events: Sequence[TimelineEvent]
) -> Operation[Mapping[tuple[str, int, str], Interruption]]:
    """The interruption of each expiry, by group, time and verb."""
    if not any(event.event == "expire" for event in events):
        return {}
    exits: list[Note] = yield exit_records(catalog.keys)
    found: dict[tuple[str, int, str], Interruption] = {}
    leases: dict[str, TimelineEvent] = {}
    for event in events:
        if event.event == "lease":
            leases[event.group] = event
        elif event.event == "expire" and event.group in leases:
            lease = leases[event.group]
            found[event.group, event.at_ms, event.event] = Interruption(
                lease.worker, _exit_of(exits, lease)
            )
    return found


def _exit_of(exits: Iterable[Note], lease: TimelineEvent) -> str:
    """How the process that held a lease ended: its first exit record after the lease began."""
    process = lease.worker.rpartition(":")[0]
    theirs = [note for note in exits if note.actor == process and note.at_ms >= lease.at_ms]
    return str(theirs[-1].arguments.get("said", "")) if theirs else ""


def _explained(event: TimelineEvent, known: Interruption) -> TimelineEvent:
    how = f"; its process {known.exit}" if known.exit else ""
    error = f"the lease of {known.worker} ended before it reported a result{how}"
    return replace(event, error=error, note=event.note.replace(event.error, error, 1))
