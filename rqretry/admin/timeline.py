"""The timeline of one message, from the entries of the partition's history that name it.

A bounded scan, from a minute before the message was made (docs/decisions/0025-history.md). Failed
attempts that were trimmed from the history are still in the failure record.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from rqretry.admin.views import GroupState, MessageView, TimelineEvent
from rqretry.catalog.catalog import Catalog
from rqretry.core.failure_record import AttemptError, read_attempt_record
from rqretry.core.history_notes import decode_noted
from rqretry.core.message_id import born_ms
from rqretry.core.traceparent import trace_id_of
from rqretry.protocol.command import Operation
from rqretry.protocol.inspect import history, ids_with_key, recent_history

_LOOK_BACK_MS = 60_000
_PAGE, _PAGES = 1000, 50
_ENTRY_PARTS = 4
_ENDS = {"succeed": "committed", "purge": "purged"}
_EXPIRED = "the lease ended before the worker reported a result"


def read_timeline(
    catalog: Catalog, topic: str, partition: int, id_: str, since_ms: int | None
) -> Operation[list[TimelineEvent]]:
    """A message's events in the partition's history, oldest first."""
    keys = catalog.partition(topic, partition)
    start = str(max(0, (since_ms or 0) - _LOOK_BACK_MS))
    events: list[TimelineEvent] = []
    wanted = id_.encode()
    for _ in range(_PAGES):
        page = yield history(keys, start=start, count=_PAGE)
        for entry_id, fields in page:
            if wanted in fields["i"]:
                events += _events(int(entry_id.partition("-")[0]), fields, wanted)
        if len(page) < _PAGE:
            break
        start = f"({page[-1][0]}"
    return events


def ids_of_key(catalog: Catalog, topic: str, partition: int, key: str) -> Operation[list[str]]:
    """The messages with a message key: all stored ones, and those in the newest history.

    Stored messages come from the index, by id; the others from the newest entries of the history,
    in the order of publishing.
    """
    keys = catalog.partition(topic, partition)
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
            failed = [e for e in same if e.event in ("fail", "expire", "redrive")]
            if not failed:
                known.append(_from_record(state.group, error))
            elif not failed[0].trace_id and error.trace:
                known[known.index(failed[0])] = failed[0].traced(trace_id_of(error.trace))
    return sorted(known, key=lambda event: event.at_ms)


def ends(events: Sequence[TimelineEvent]) -> dict[str, str]:
    """What became of a message that is no longer stored, for each group that had it."""
    last = {event.group: event for event in events if event.group}
    outcomes = {
        group: f"{_ENDS.get(event.event, event.event)} at {date(event.at_ms)} by {event.worker}"
        for group, event in last.items()
    }
    return outcomes or {"-": f"{events[-1].event} at {date(events[-1].at_ms)}; no longer stored"}


def remembered(id_: str, events: Sequence[TimelineEvent]) -> MessageView:
    """A message that is no longer stored, from its history."""
    states = [
        GroupState(group, _ENDS.get(_last(events, group), "gone"), 0, None, outcome)
        for group, outcome in ends(events).items()
    ]
    first = events[0]
    return MessageView(
        id_, first.topic, first.partition, None, None, (), {}, born_ms(id_), tuple(states),
        tuple(events),
    )  # fmt: skip


def _last(events: Sequence[TimelineEvent], group: str) -> str:
    return next((event.event for event in reversed(events) if event.group == group), "")


def date(at_ms: int) -> str:
    """ISO 8601 in UTC."""
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _events(at_ms: int, fields: dict[str, bytes], wanted: bytes) -> Iterator[TimelineEvent]:
    ids, notes = fields["i"].split(b" "), fields["d"].split(b" ")
    verb, group, worker = (fields[name].decode() for name in "egw")
    for place, id_ in enumerate(ids):
        if id_ == wanted:
            note = notes[place].decode() if place < len(notes) else ""
            attempt, level, due_ms, state = _read(verb, note)
            error, trace_id = _blob(verb, fields["b"], ids, place)
            text = _describe(state, level, due_ms, error)
            yield TimelineEvent(
                at_ms, verb, group, worker, text, attempt, level, due_ms, error, trace_id
            )


def _read(verb: str, note: str) -> tuple[int | None, int | None, int | None, str]:
    """Attempt, level, due time, and the rest of a note."""
    if verb == "lease":
        parts = note.split(":")
        return (int(parts[1]) if len(parts) == _ENTRY_PARTS else 1), None, None, ""
    if verb == "succeed":
        return (int(note) if note.isdecimal() else 1), None, None, ""
    head, *rest = note.split(",")
    attempt = int(head) if head.isdecimal() else None
    place = rest if attempt is not None else [head, *rest]
    match place:
        case ["W", level, due]:
            return attempt, int(level), int(float(due)), "waits"
        case ["D"]:
            return attempt, None, None, "dead"
        case ["R"]:
            return attempt, None, None, "ready"
        case _:
            return attempt, None, None, note if place != [""] else ""


def _blob(verb: str, blob: bytes, ids: Sequence[bytes], place: int) -> tuple[str, str | None]:
    """The error and the trace of one message of an entry."""
    if verb == "publish" and blob:
        notes = decode_noted(blob, [id_.decode() for id_ in ids])
        return "", notes[place].trace_id
    if verb == "expire":
        return _EXPIRED, None
    lines = blob.decode(errors="replace").split("\n") if verb == "fail" else []
    found = read_attempt_record(f"0 0 {lines[place]}") if place < len(lines) else None
    return ("", None) if found is None else (str(found), trace_id_of(found.trace))


def _from_record(group: str, error: AttemptError) -> TimelineEvent:
    verbs = {"redriven": "redrive", "expired": "expire"}
    verb = verbs.get(error.cause, "fail")
    text = "" if verb == "redrive" else str(error)
    trace_id = trace_id_of(error.trace)
    attempt = error.attempt or None
    return TimelineEvent(
        error.at_ms, verb, group, error.worker, text, attempt, None, None, text, trace_id
    )


def _describe(state: str, level: int | None, due_ms: int | None, error: str) -> str:
    if due_ms is not None:
        state = f"{state} on level {level} until {date(due_ms)}"
    return ": ".join(filter(None, (error, state))) if error else state
