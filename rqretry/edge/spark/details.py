"""What an entry of the history says of each message alone: attempt, outcome, error, properties."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from rqretry.failures import AttemptError, fingerprint_of_text, read_line
from rqretry.noted import decode_noted

_OUTCOMES = {
    "publish": "stored",
    "deliver": "ready",
    "lease": "inflight",
    "change": "inflight",
    "succeed": "committed",
    "promote": "ready",
    "redrive": "ready",
    "purge": "purged",
    "recall": "recalled",
}
_LETTERS = {"R": "ready", "W": "waiting_retry", "D": "dead"}
_WITHOUT_NOTES_FIRST = ("lease", "succeed")
_EXPIRED = AttemptError(
    0, 0, "expired", fingerprint=fingerprint_of_text("expired", ""), type="expired"
)


class Call(NamedTuple):
    """One entry: what one script did to a batch of messages."""

    verb: str
    at_ms: int
    ids: list[bytes]
    notes: bytes
    blob: bytes
    first: int
    """The first of the ids that is wanted."""
    last: int
    """Behind the last of them."""


class Details:
    """Columns that are built row by row, and only where some entry has something to say."""

    def __init__(self) -> None:
        self._rows = 0
        self._columns: dict[str, list[Any]] = {}

    def add(self, call: Call) -> None:
        """The rows of one entry."""
        count = call.last - call.first
        usual = 1 if call.verb in _WITHOUT_NOTES_FIRST else None
        self._put("outcome", [_OUTCOMES.get(call.verb)] * count)
        self._put("attempt", [usual] * count)
        if call.notes:
            notes = call.notes.decode().split(" ")[call.first : call.last]
            self._put_places([_place(call, note) for note in notes])
        if call.blob and call.verb == "publish":
            self._put_properties(call)
        elif call.blob and call.verb == "fail":
            lines = call.blob.decode(errors="replace").split("\n")[call.first : call.last]
            self._put_errors([read_line(f"0 0 {line}") for line in lines])
        elif call.verb == "expire":
            self._put_errors([_EXPIRED] * count)
        self._rows += count

    def column(self, name: str) -> list[Any] | None:
        """The values of a column; None if no entry said anything of it."""
        values = self._columns.get(name)
        if values is not None:
            values += [None] * (self._rows - len(values))
        return values

    def _put(self, name: str, values: list[Any]) -> None:
        column = self._columns.setdefault(name, [])
        del column[self._rows :]
        column += [None] * (self._rows - len(column))
        column += values

    def _put_places(self, places: "Sequence[_Place]") -> None:
        self._put("attempt", [place.attempt for place in places])
        self._put("outcome", [place.outcome for place in places])
        if any(place.due_ms is not None for place in places):
            self._put("level", [place.level for place in places])
            self._put("due_time", [place.due_ms for place in places])

    def _put_errors(self, errors: Sequence[AttemptError | None]) -> None:
        self._put("error_type", [error_type(e) if e else None for e in errors])
        self._put("error_message", [(e.message or None) if e else None for e in errors])
        self._put("fingerprint", [(e.fingerprint or None) if e else None for e in errors])

    def _put_properties(self, call: Call) -> None:
        ids = [id_.decode() for id_ in call.ids]
        notes = decode_noted(call.blob, ids)[call.first : call.last]
        self._put("tag", [note.tag for note in notes])
        self._put("keys", [list(note.keys) or None for note in notes])
        self._put("message_group", [note.message_group for note in notes])
        self._put("trace_id", [note.trace_id for note in notes])


def error_type(error: AttemptError) -> str | None:
    """The exception's type; where none was raised, the cause if it is more than a failure."""
    return error.type or (error.cause if error.cause != "failure" else None)


class _Place(NamedTuple):
    attempt: int | None
    outcome: str | None
    level: int | None = None
    due_ms: int | None = None


def _place(call: Call, note: str) -> _Place:
    """Where a note says that the message went; nothing is worse than a note of a newer version."""
    try:
        return _read_place(call, note)
    except (ValueError, IndexError, KeyError):
        return _Place(None, _OUTCOMES.get(call.verb))


def _read_place(call: Call, note: str) -> _Place:
    if call.verb == "lease":
        return _Place(1 if note == "-" else int(note.split(":")[1]), "inflight")
    if call.verb == "succeed":
        return _Place(int(note), "committed")
    if call.verb == "redrive":
        attempt, rest = None, note.split(",")
    else:
        number, *rest = note.split(",")
        attempt = int(number)
    if call.verb == "change":
        due = int(float(rest[0]))
        live = due > call.at_ms
        return _Place(attempt, "inflight" if live else "ready", None, due if live else None)
    if rest[0] == "W":
        return _Place(attempt, "waiting_retry", int(float(rest[1])), int(float(rest[2])))
    return _Place(attempt, _LETTERS[rest[0]])
