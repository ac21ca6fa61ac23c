"""The timeline of one message, from the entries of the partition's history that name it.

A bounded scan, from a minute before the message was made (docs/decisions/0025-history.md). Failed
attempts that were trimmed from the history are still in the failure record.

An interruption (cause `expired`) is not a failure of the handler: nothing was raised. The script
that expires a lease knows neither who held it nor why it ended. The history has the worker, and
that worker's supervisor recorded how the process ended (supervision/exit_records.py).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from rqretry.admin.views import GroupState, TimelineEvent, date
from rqretry.catalog.catalog import Catalog
from rqretry.core.dead_letter import DeadLetterRecord
from rqretry.core.durations import spell
from rqretry.core.failure_record import AttemptError, read_attempt_record
from rqretry.core.history_notes import decode_noted, decode_times
from rqretry.core.traceparent import trace_id_of
from rqretry.maintenance.process_exits import EXPIRED
from rqretry.protocol.audit_log import Note, exit_records
from rqretry.protocol.command import Operation
from rqretry.protocol.inspect import entries_of, ids_with_key, recent_history
from rqretry.protocol.keys import GroupKeys, PartitionKeys

_LOOK_BACK_MS = 60_000
_PAGE, _PAGES = 1000, 50
_ENTRY_PARTS = 4
_ENTRIES, _LOOKS = 200, 25
"""History entries of a read, and reads of a partition, in search of who leased."""
_OF_RECORDS = ("fail", "expire", "redrive", "dead_letter")
"""What has a line in the failure record."""
_MAKE_READY = frozenset(
    {
        "publish",
        "commit",
        "deliver",
        "promote",
        "release",
        "expire",
        "redrive",
        "replay",
        "subscribe",
    }
)
"""What makes a message ready, unless it waits for a time."""
_LEASE_ENDED = "the lease ended before the worker reported a result"


def read_timeline(
    keys: PartitionKeys, id_: str, since_ms: int | None
) -> Operation[list[TimelineEvent]]:
    """A message's events in the partition's history, oldest first."""
    start = str(max(0, (since_ms or 0) - _LOOK_BACK_MS))
    entries = yield from entries_of(keys, id_, start)
    found = (event for entry in entries for event in _events(*entry, id_.encode()))
    return list(_with_queue_waits(found))


def _with_queue_waits(events: Iterable[TimelineEvent]) -> Iterator[TimelineEvent]:
    """The same, with how long a message was ready before each lease."""
    since: dict[str, int | None] = {}
    for event in events:
        if event.event == "lease":
            ready_ms = since.get(event.group, since.get(""))
            since[event.group] = None
            waited = None if ready_ms is None else (event.at_ms - ready_ms) / 1000
            yield replace(event, queue_seconds=waited)
            continue
        if event.event in _MAKE_READY and event.due_ms is None:
            since[event.group] = event.at_ms
        yield event


def timing(event: TimelineEvent) -> str:
    """Where the time before an event went, in words; "" if that is not known."""
    parts = {
        "in the queue": event.queue_seconds,
        "in the buffer": event.buffer_seconds,
        "in the handler": event.handler_seconds,
    }
    return ", ".join(f"{_spell(s)} {where}" for where, s in parts.items() if s is not None)


def _spell(seconds: float) -> str:
    return spell(seconds) if seconds >= 1 or seconds == 0 else f"{seconds * 1000:.3g} ms"


def ids_of_key(keys: PartitionKeys, key: str) -> Operation[list[str]]:
    """The messages with a message key: all stored ones, and those in the newest history.

    Stored messages come from the index, by id; the others from the newest entries of the history,
    in the order of publishing.
    """
    stored: list[str] = []
    while True:
        after = stored[-1] if stored else ""
        page: list[str] = yield ids_with_key(keys, key, after=after, count=_PAGE)
        stored += page
        if len(page) < _PAGE:
            break
    recent: dict[str, None] = {}
    end = "+"
    for _ in range(_PAGES):
        entries = yield recent_history(keys, end=end, count=_PAGE)
        for _, fields in entries:
            recent |= dict.fromkeys(reversed(_with_key(fields, key)))
        if len(entries) < _PAGE:
            break
        end = f"({entries[-1][0]}"
    return [*(id_ for id_ in stored if id_ not in recent), *reversed(recent)]


def _with_key(fields: dict[str, bytes], key: str) -> list[str]:
    """The messages of a history entry that were published or prepared with a message key."""
    if fields["e"] not in (b"publish", b"prepare") or not fields["b"]:
        return []
    ids = fields["i"].decode().split(" ")
    notes = decode_noted(fields["b"], ids)
    return [id_ for id_, note in zip(ids, notes, strict=True) if key in note.keys]


def with_record(
    events: Sequence[TimelineEvent], states: Iterable[GroupState]
) -> list[TimelineEvent]:
    """The history, completed from the failure record: trimmed attempts, traces of redrives."""
    known = list(events)
    for state in states:
        for error in state.errors:
            same = [e for e in known if (e.at_ms, e.group) == (error.at_ms, state.group)]
            failed = [e for e in same if e.event in _OF_RECORDS]
            if not failed:
                known.append(_from_record(state.group, error))
            elif not failed[0].trace_id and error.trace:
                traced = replace(failed[0], trace_id=trace_id_of(error.trace))
                known[known.index(failed[0])] = traced
    return sorted(known, key=lambda event: event.at_ms)


def _events(at_ms: int, fields: dict[str, bytes], wanted: bytes) -> Iterator[TimelineEvent]:
    ids, notes = fields["i"].split(b" "), fields["d"].split(b" ")
    verb, group, worker = (fields[name].decode() for name in "egw")
    for index, id_ in enumerate(ids):
        if id_ == wanted:
            note = notes[index].decode() if index < len(notes) else ""
            attempt, level, due_ms, state = _read(verb, note)
            error, trace_id = _blob(verb, fields["b"], ids, index)
            text = _describe(state, level, due_ms, error)
            buffered, ran = decode_times(fields.get("t", b""), len(ids), index) or (None, None)
            yield TimelineEvent(
                at_ms, verb, group, worker, text, attempt, level, due_ms, error, trace_id,
                buffer_seconds=buffered, handler_seconds=ran,
            )  # fmt: skip


def _read(verb: str, note: str) -> tuple[int | None, int | None, int | None, str]:
    """Attempt, level, due time, and the rest of a note."""
    if verb == "lease":
        parts = note.split(":")
        return (int(parts[1]) if len(parts) == _ENTRY_PARTS else 1), None, None, ""
    if verb == "succeed":
        return (int(note) if note.isdecimal() else 1), None, None, ""
    head, *rest = note.split(",")
    attempt = int(head) if head.isdecimal() else None
    outcome = rest if attempt is not None else [head, *rest]
    match outcome:
        case ["W", level, due]:
            return attempt, int(level), int(float(due)), "waits"
        case ["D"]:
            return attempt, None, None, "dead"
        case ["R"]:
            return attempt, None, None, "ready"
        case _:
            return attempt, None, None, note if outcome != [""] else ""


def _blob(verb: str, blob: bytes, ids: Sequence[bytes], index: int) -> tuple[str, str | None]:
    """The error and the trace of one message of an entry."""
    if verb == "publish" and blob:
        notes = decode_noted(blob, [id_.decode() for id_ in ids])
        return "", notes[index].trace_id
    if verb == "expire":
        return _LEASE_ENDED, None
    lines = blob.decode(errors="replace").split("\n") if verb in ("fail", "dead_letter") else []
    found = read_attempt_record(f"0 0 {lines[index]}") if index < len(lines) else None
    return ("", None) if found is None else (str(found), trace_id_of(found.trace))


def _from_record(group: str, error: AttemptError) -> TimelineEvent:
    verbs = {
        "redriven": error.message or "redrive", "expired": "expire", "by_hand": "dead_letter"
    }  # fmt: skip
    verb = verbs.get(error.cause, "fail")
    text = "" if error.cause == "redriven" else str(error)
    trace_id = trace_id_of(error.trace)
    attempt = error.attempt or None
    waits = error.due_ms is not None and error.due_ms > error.at_ms
    note = _describe("waits", None, error.due_ms, text) if waits else text
    due_ms = error.due_ms if waits else None
    return TimelineEvent(
        error.at_ms, verb, group, error.worker, note, attempt, None, due_ms, text, trace_id
    )


def _describe(state: str, level: int | None, due_ms: int | None, error: str) -> str:
    if due_ms is not None:
        on = "" if level is None else f" on level {level}"
        state = f"{state}{on} until {date(due_ms)}"
    return ": ".join(filter(None, (error, state))) if error else state


def holders_of(
    keys: PartitionKeys, group: str, ids: Iterable[str]
) -> Operation[dict[str, tuple[str, int]]]:
    """Who leased these messages and when, as far as the newest history of the partition says."""
    left, found, end = set(ids), dict[str, tuple[str, int]](), "+"
    for _ in range(_LOOKS):
        if not left:
            break
        entries = yield recent_history(keys, end=end, count=_ENTRIES)
        for entry_id, fields in entries:
            if fields["e"] != b"lease" or fields["g"].decode() != group:
                continue
            taken = left.intersection(fields["i"].decode().split(" "))
            left -= taken
            at_ms = int(entry_id.partition("-")[0])
            found |= dict.fromkeys(taken, (fields["w"].decode(), at_ms))
        if len(entries) < _ENTRIES:
            break
        end = f"({entries[-1][0]}"
    return found


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
    keys = [(event.group, event.at_ms, event.event) for event in events]
    return [_explained(event, found.get(key)) for event, key in zip(events, keys, strict=True)]


def explained(
    catalog: Catalog, dead_letter: DeadLetterRecord, keys: GroupKeys
) -> Operation[DeadLetterRecord]:
    """The dead letter, with the worker of each interrupted attempt and how its process ended."""
    if not any(error.cause == EXPIRED for error in dead_letter.errors):
        return dead_letter
    events = yield from read_timeline(keys.partition, dead_letter.id, dead_letter.born_ms)
    found = yield from _interruptions(catalog, events)
    errors = []
    for error in dead_letter.errors:
        known = found.get((dead_letter.group, error.at_ms, "expire"))
        if error.cause == EXPIRED and known is not None:
            how = f"the worker's process {known.exit}" if known.exit else ""
            error = replace(error, worker=known.worker, message=error.message or how)  # noqa: PLW2901
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


def _explained(event: TimelineEvent, known: Interruption | None) -> TimelineEvent:
    if known is None:
        return event
    how = f"; its process {known.exit}" if known.exit else ""
    error = f"the lease of {known.worker} ended before it reported a result{how}"
    return replace(event, error=error, note=event.note.replace(event.error, error, 1))
