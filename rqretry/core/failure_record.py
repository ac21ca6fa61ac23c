"""Why an attempt failed: the line that the failure record keeps, and reading it back.

A fingerprint names a failure by its exception type and the code positions it came through, so that
ten thousand dead letters of one bug are one row. Walking a traceback costs a few microseconds,
formatting one many times that: it is formatted once per fingerprint (decisions 24).
"""

import hashlib
import json
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from json.encoder import encode_basestring_ascii as _quoted
from types import CodeType, TracebackType
from typing import Any

from rqretry.core.errors import show

MAX_MESSAGE_BYTES = 256
REDRIVEN = "redriven"
"""The cause of a line that is no failure: the message was sent back from the dead letters."""
_DEEPEST = 64
_DEEPEST_KEY = 1 + 2 * _DEEPEST
_FINGERPRINTS_KEPT = 4096
_MOST_BYTES = 4
"""Of one character in UTF-8."""
_CARRIED = "_rqretry_fingerprint"
_TRACEBACK_CHARACTERS = 16_000
_NO_TIME_S = 0.0005
"""What is less is told as 0 s."""


@dataclass(frozen=True, slots=True)
class AttemptError:
    """One line of a message's failure record.

    Attributes:
        attempt: Which delivery failed; 0 marks a redrive.
        at_ms: When the server learned of it, milliseconds since the epoch.
        cause: "failure", "timeout", "expired", "undecodable", "rejected", "redriven", ...
        type: The exception's type, or "" where none was raised.
        message: What it said, or the handler's reason; at most 256 bytes.
        fingerprint: What failures of one kind have in common.
        worker: Who ran the attempt; "" where that is not known.
        seconds: How long the handler ran.
        trace: The attempt's W3C traceparent; "" where it was not traced.
    """

    attempt: int
    at_ms: int
    cause: str
    type: str = ""
    message: str = ""
    fingerprint: str = ""
    worker: str = ""
    seconds: float = 0.0
    trace: str = ""

    def __str__(self) -> str:
        """In one line: type and message, or the reason or cause."""
        return ": ".join(filter(None, (self.type, self.message))) or self.cause


def fingerprint_of(error: BaseException) -> str:
    """16 hex characters from the exception type and the functions and lines it came through."""
    carried = getattr(error, _CARRIED, None)
    if type(carried) is str:
        return carried
    key: list[Any] = [type(error)]
    trace = error.__traceback__
    while trace is not None and len(key) < _DEEPEST_KEY:
        key += (id(trace.tb_frame.f_code), trace.tb_lasti)
        trace = trace.tb_next
    seen = _fingerprints.get(tuple(key))
    return seen[0] if seen else _new_fingerprint(error, tuple(key))


def carry_fingerprint(error: BaseException, fingerprint: str) -> None:
    """Give an exception the fingerprint it had in the process where it was raised."""
    error.__dict__[_CARRIED] = fingerprint


def fingerprint_of_text(kind: str, text: str) -> str:
    """The fingerprint of a failure that is no exception: what kind, and the reason given."""
    return hashlib.blake2b(f"{kind}\0{text}".encode(errors="replace"), digest_size=8).hexdigest()


def describe_exception(
    error: BaseException, fingerprint: str, worker: str, seconds: float, trace: str = ""
) -> str:
    """The line for an exception."""
    kind, said = type(error).__qualname__, _text_of(error)
    return _line("failure", kind, said, fingerprint, worker, seconds, trace)


def describe_cause(
    cause: str, reason: str, worker: str = "", seconds: float = 0.0, trace: str = ""
) -> str:
    """The line for a failure that is no exception."""
    fingerprint = fingerprint_of_text(cause, reason)
    return _line(cause, "", reason, fingerprint, worker, seconds, trace)


def describe_redrive(actor: str, trace: str = "") -> str:
    """The line for a dead letter that was sent back; it keeps the lineage."""
    fields = {"c": "redriven", "w": actor, "s": trace}
    said = {name: value for name, value in fields.items() if value}
    return json.dumps(said, separators=(",", ":"))


def formatted(error: BaseException) -> str:
    """The traceback as text, cut in the middle where it is very long."""
    text = "".join(traceback.format_exception(error))
    if len(text) <= _TRACEBACK_CHARACTERS:
        return text
    half = _TRACEBACK_CHARACTERS // 2
    return f"{text[:half]}\n[...]\n{text[-half:]}"


def read_record(record: str) -> list[AttemptError]:
    """A failure record as the script keeps it; a damaged line is skipped."""
    return [error for error in map(read_line, record.splitlines()) if error is not None]


def latest(errors: Sequence[AttemptError]) -> Sequence[AttemptError]:
    """The attempts since the message was last sent back from the dead letters."""
    sent_back = [place for place, error in enumerate(errors, 1) if error.cause == REDRIVEN]
    return errors[sent_back[-1] :] if sent_back else errors


def read_line(line: str) -> AttemptError | None:
    """One line of a failure record; None where it is damaged, or there is none."""
    if not line:  # of a first attempt, and so of most
        return None
    try:
        attempt, at_ms, text = line.split(" ", 2)
        fields = json.loads(text)
        return AttemptError(
            int(attempt),
            int(float(at_ms)),
            str(fields.get("c", "failure")),
            str(fields.get("t", "")),
            str(fields.get("m", "")),
            str(fields.get("f") or fingerprint_of_text(str(fields.get("c", "")), "")),
            str(fields.get("w", "")),
            float(fields.get("d", 0.0)),
            str(fields.get("s", "")),
        )
    except (ValueError, AttributeError, TypeError):
        return None


def _line(
    cause: str, kind: str, message: str, fingerprint: str, worker: str, seconds: float, trace: str
) -> str:
    # A JSON encoder for each line would cost ten times as much.
    if seconds < _NO_TIME_S and not trace:
        return _told_at_once(cause, kind, fingerprint, worker, _cut(message))
    said = _told(cause, kind, fingerprint, worker, _cut(message))
    traced = f',"s":{_quoted(trace)}' if trace else ""
    return f'{said}{traced},"d":{round(seconds, 3)}}}'


@lru_cache(maxsize=4096)
def _told_at_once(cause: str, kind: str, fingerprint: str, worker: str, message: str) -> str:
    """The line of failures that took no time: the same text for all that say the same."""
    return f'{_told(cause, kind, fingerprint, worker, message)},"d":0.0}}'


@lru_cache(maxsize=4096)
def _told(cause: str, kind: str, fingerprint: str, worker: str, message: str) -> str:
    """The beginning of a line, the same for all failures that say the same."""
    said = f',"m":{_quoted(message)}' if message else ""
    return f"{_head(cause, kind, fingerprint, worker)}{said}"


@lru_cache(maxsize=4096)
def _head(cause: str, kind: str, fingerprint: str, worker: str) -> str:
    """The beginning of that, the same for all failures of one kind."""
    fields = {"c": cause, "t": kind, "f": fingerprint, "w": worker}
    said = {name: value for name, value in fields.items() if value}
    return json.dumps(said, separators=(",", ":"))[:-1]


def _cut(message: str) -> str:
    if len(message) <= MAX_MESSAGE_BYTES // _MOST_BYTES:
        return message
    data = message.encode(errors="replace")
    return (
        message
        if len(data) <= MAX_MESSAGE_BYTES
        else data[:MAX_MESSAGE_BYTES].decode(errors="ignore")
    )


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide the failure
        return show(error)


def _positions(trace: TracebackType | None) -> list[tuple[CodeType, int]]:
    positions: list[tuple[CodeType, int]] = []
    while trace is not None and len(positions) < _DEEPEST:
        positions.append((trace.tb_frame.f_code, trace.tb_lineno))
        trace = trace.tb_next
    return positions


_fingerprints: dict[tuple[Any, ...], tuple[str, list[tuple[CodeType, int]]]] = {}
"""By type and places in code, each named by its id: to hash code costs more than to walk a
traceback. An entry holds its code, so that no other code gets the same id."""


def _new_fingerprint(error: BaseException, key: tuple[Any, ...]) -> str:
    kind, positions = type(error), _positions(error.__traceback__)
    # File names differ between machines and line numbers between releases; functions rarely do.
    names = [f"{code.co_qualname}:{line - code.co_firstlineno}" for code, line in positions]
    text = "\n".join([kind.__module__, kind.__qualname__, *names])
    found = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    if len(_fingerprints) >= _FINGERPRINTS_KEPT:
        _fingerprints.clear()
    _fingerprints[key] = found, positions
    return found
