"""The details of each message in an entry of the history: attempt, outcome, error, properties.

Equal texts are parsed once: Arrow cuts them out of the entries and finds the distinct ones, and
Python parses only those.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rqretry.core.failure_record import AttemptError, fingerprint_of_text, read_attempt_record
from rqretry.core.history_notes import TIMES_WIDTH, decode_columns

_OUTCOMES = {
    "publish": "stored",
    "deliver": "ready",
    "lease": "inflight",
    "change": "inflight",
    "succeed": "committed",
    "promote": "ready",
    "redrive": "ready",
    "replay": "ready",
    "purge": "purged",
    "recall": "recalled",
    "dead_letter": "dead",
}
_STATE_CODES = {"R": "ready", "W": "waiting_retry", "D": "dead"}
_STATES = sorted({*_OUTCOMES.values(), *_STATE_CODES.values()})
_CODES = {state: code for code, state in enumerate(_STATES)}
_USUALLY_FIRST = ("lease", "succeed")
"""Without a note, all their messages are at their first attempt."""
_NONE = -1
_EXPIRED = AttemptError(
    0, 0, "expired", fingerprint=fingerprint_of_text("expired", ""), type="expired"
)
_CHANGING = r',"(?:[ws]":"(?:[^"\\]|\\.)*"|d":[0-9.eE+-]+)'
"""Of a failure's line: worker, trace and time, which differ where the error is the same. Inside a
text every quote has a backslash before it, so only fields match."""

DESTINATIONS = ("attempt", "outcome", "level", "due_time")
ERRORS = ("error_type", "error_message", "fingerprint")
PROPERTIES = ("tag", "keys", "message_group", "trace_id")
TIMES = ("buffer_seconds", "handler_seconds")

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Calls:
    """Consecutive entries: what one script each did to a batch of messages.

    Attributes:
        verbs, notes, blobs: Of each entry, as the server answers them.
        at_ms: The time of each.
        ids: The ids of the messages of all of them.
        counts: How many messages each has.
        starts: Where the messages of each begin in `ids`.
        times: When the handlers of each ran; b"" where that is not known.
    """

    verbs: Sequence[bytes]
    notes: Sequence[bytes]
    blobs: Sequence[bytes]
    at_ms: Numbers
    ids: pa.Array
    counts: Numbers
    starts: Numbers
    times: Sequence[bytes]
    by_verb: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Find the entries of each verb."""
        for number, verb in enumerate(self.verbs):
            self.by_verb.setdefault(verb.decode(), []).append(number)

    def rows(self, entries: Sequence[int]) -> Numbers:
        """The numbers of the rows of some entries."""
        counts = self.counts[entries]
        before = np.cumsum(counts) - counts
        return np.repeat(self.starts[entries] - before, counts) + np.arange(counts.sum())

    def cut(self, entries: Sequence[int], values: Sequence[bytes], by: str) -> pa.Array:
        """A value of each of these entries, cut into one part for each of its messages."""
        lists = pc.split_pattern(pa.array([values[n] for n in entries], pa.binary()), by)
        counts = self.counts[entries]
        if np.array_equal(np.diff(lists.offsets.to_numpy()), counts):
            return lists.values
        padded: list[bytes] = []
        for parts, count in zip(lists.to_pylist(), counts.tolist(), strict=True):
            padded += (parts + [b""] * count)[:count]
        return pa.array(padded, pa.binary())


def destinations(calls: Calls) -> dict[str, pa.Array]:
    """Attempt, outcome, level and due time."""
    total = len(calls.ids)
    attempt, outcome, level, due = (np.full(total, _NONE, np.int64) for _ in range(4))
    for verb, entries in calls.by_verb.items():
        rows = calls.rows(entries)
        outcome[rows] = _CODES.get(_OUTCOMES.get(verb, ""), _NONE)
        if verb in _USUALLY_FIRST:
            attempt[rows] = 1
        noted = [number for number in entries if calls.notes[number]]
        if not noted:
            continue
        rows = calls.rows(noted)
        notes = calls.cut(noted, calls.notes, " ").dictionary_encode()
        found = [_destination_of(verb, note) for note in notes.dictionary.to_pylist()]
        taken = np.array(found, np.int64)[notes.indices.to_numpy()]
        attempt[rows], outcome[rows], level[rows], due[rows] = taken.T
    return {
        "attempt": _numbers(attempt),
        "outcome": _texts(_STATES, outcome),
        "level": _numbers(level),
        "due_time": _numbers(due).cast(pa.timestamp("ms", "UTC")),
    }


def errors(calls: Calls) -> dict[str, pa.Array]:
    """The error of failures and expiries."""
    which = np.full(len(calls.ids), _NONE, np.int64)
    known: list[AttemptError | None] = [_EXPIRED]
    which[calls.rows(calls.by_verb.get("expire", []))] = 0
    failed = [number for number in calls.by_verb.get("fail", []) if calls.blobs[number]]
    if failed:
        lines = calls.cut(failed, calls.blobs, "\n")
        lines = pc.replace_substring_regex(lines, _CHANGING, "").dictionary_encode()
        which[calls.rows(failed)] = lines.indices.to_numpy() + len(known)
        texts = (line.decode(errors="replace") for line in lines.dictionary.to_pylist())
        known += [read_attempt_record(f"0 0 {text}") for text in texts]
    return {
        "error_type": _texts([error_type(e) if e else None for e in known], which),
        "error_message": _texts([(e.message or None) if e else None for e in known], which),
        "fingerprint": _texts([(e.fingerprint or None) if e else None for e in known], which),
    }


def properties(calls: Calls) -> dict[str, pa.Array]:
    """Tag, keys, message group and trace, which publish records."""
    total = len(calls.ids)
    columns: dict[str, list[Any]] = {}
    for number in calls.by_verb.get("publish", []):
        blob = calls.blobs[number]
        if not blob:
            continue
        first, count = int(calls.starts[number]), int(calls.counts[number])
        ids = calls.ids.slice(first, count).to_pylist()
        for name, values in decode_columns(blob, ids)._asdict().items():
            if values is not None:
                column = columns.setdefault(name, [None] * total)
                column[first : first + count] = values
    types = {"keys": pa.list_(pa.string())}
    made = {
        name: pa.array(values, types.get(name, pa.string())) for name, values in columns.items()
    }
    return {name: made.get(name, pa.nulls(total)) for name in PROPERTIES}


def handler_times(calls: Calls) -> dict[str, pa.Array]:
    """How long a delivery was in the worker's buffer, and its handler ran."""
    seconds = np.full((len(calls.ids), len(TIMES)), np.nan)
    sizes = enumerate(zip(calls.times, calls.counts.tolist(), strict=True))
    known = [number for number, (times, count) in sizes if len(times) == TIMES_WIDTH * count]
    if known:
        halves = np.frombuffer(b"".join([calls.times[number] for number in known]), "<f2")
        seconds[calls.rows(known)] = halves.reshape(-1, len(TIMES))
    columns = zip(TIMES, seconds.T, strict=True)
    return {name: pa.array(column, mask=np.isnan(column)) for name, column in columns}


def error_type(error: AttemptError) -> str | None:
    """The exception's type; where none was raised, the cause if it is more than a failure."""
    return error.type or (error.cause if error.cause != "failure" else None)


class _Destination(NamedTuple):
    """Where a message went, by its note; -1 for what is not in it."""

    attempt: int
    outcome: int
    level: int = _NONE
    due_ms: int = _NONE


def _destination_of(verb: str, note: bytes) -> _Destination:
    """Parse a note; one of a newer version gives nothing."""
    try:
        return _read_destination(verb, note.decode())
    except (ValueError, IndexError, KeyError):
        return _Destination(_NONE, _CODES.get(_OUTCOMES.get(verb, ""), _NONE))


def _read_destination(verb: str, note: str) -> _Destination:
    if verb == "lease":
        return _Destination(1 if note == "-" else int(note.split(":")[1]), _CODES["inflight"])
    if verb == "succeed":
        return _Destination(int(note), _CODES["committed"])
    if verb == "redrive":
        attempt, rest = _NONE, note.split(",")
    else:
        number, *rest = note.split(",")
        attempt = int(number)
    if verb == "change":
        return _Destination(attempt, _CODES["inflight"], _NONE, int(float(rest[0])))
    if rest[0] == "W":
        waiting = _CODES["waiting_retry"]
        return _Destination(attempt, waiting, int(float(rest[1])), int(float(rest[2])))
    return _Destination(attempt, _CODES[_STATE_CODES[rest[0]]])


def _numbers(values: Numbers) -> pa.Array:
    return pa.array(values, pa.int64(), mask=values == _NONE)


def _texts(known: Sequence[str | None], which: Numbers) -> pa.Array:
    return pa.array(known, pa.string()).take(_numbers(which))


def needed(names: Sequence[str]) -> Iterator[Any]:
    """The functions that make the requested columns."""
    makers = {
        destinations: DESTINATIONS,
        errors: ERRORS,
        properties: PROPERTIES,
        handler_times: TIMES,
    }
    return (maker for maker, made in makers.items() if not set(made).isdisjoint(names))
