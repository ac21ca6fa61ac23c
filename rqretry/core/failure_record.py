"""Why an attempt failed: its attempt record, of which a failure record has many, as text and back.

A fingerprint names a failure by its exception type and the code positions it came through, or by
the reason given, without its numbers, ids and quoted parts, so that ten thousand dead letters of
one bug are one row. Walking a traceback costs a few microseconds, formatting one many times that:
it is formatted once per fingerprint (docs/decisions/0021).
"""

import hashlib
import json
import re
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from json.encoder import encode_basestring_ascii as _quoted
from types import CodeType, TracebackType
from typing import Any

from rqretry.core.errors import show
from rqretry.core.redact import by_patterns_alone, redacted

MAX_MESSAGE_BYTES = 256
REDRIVEN = "redriven"
"""The cause of a record that is not a failure: the message was sent back from the dead letters."""
BY_HAND = "by_hand"
"""The cause of a record that is not a failure: an operator ended the message."""
REPLAYED = "replay"
"""What the record of one that was sent back says, where it was not dead."""
_DEEPEST = 64
_FINGERPRINTS_KEPT = 4096
_MOST_BYTES = 4
"""Of one character in UTF-8."""
_CARRIED = "_rqretry_fingerprint"
_TRACEBACK_CHARACTERS = 16_000
_FINGERPRINT = '"f":"'
_NO_TIME_S = 0.0005
"""What is less is recorded as 0 s."""
_TEMPLATE_CHARACTERS = 1_000
"""Of a reason; what differs only after these is of one kind."""
_VARIABLE = "#"
_PARTS = re.compile(
    r"""(?<!\w)(?:'[^'\n]*'|"[^"\n]*"|`[^`\n]*`)(?!\w)  # quoted
    | \w+://[^\s,;)\]}>]+ | [\w.+-]+@[\w-][\w.-]*        # addresses
    | [\w.:+-]+                                           # words, dates, numbers, hosts""",
    re.VERBOSE,
)
_HEX = re.compile(r"[0-9a-f]{8,}|[0-9A-F]{8,}")
_HOST = re.compile(r"(?:[a-z][a-z-]*\.){2,}[a-z-]{2,}")
_REPEATED = re.compile(r"#(?:[\s,;|/-]+#)+")


@dataclass(frozen=True, slots=True)
class AttemptError:
    """One attempt record of a message's failure record.

    Attributes:
        attempt: Which delivery failed; 0 marks a redrive or a replay.
        at_ms: When the server learned of it, milliseconds since the epoch.
        cause: "failure", "timeout", "expired", "given_back", "undecodable", "rejected", ...;
            "by_hand" and "redriven" are what an operator did.
        type: The exception's type, or "" if none was raised.
        message: Its text, or the handler's reason; at most 256 bytes.
        fingerprint: The same for failures of the same cause and code.
        worker: Who ran the attempt; "" if that is not known.
        seconds: How long the handler ran.
        trace: The attempt's W3C traceparent; "" if it was not traced.
        due_ms: When the next attempt was due by it, server time; None if there was to be none, or
            the message was put off since.
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
    due_ms: int | None = None

    def __str__(self) -> str:
        """In one line: type and message, or the reason or cause."""
        return ": ".join(filter(None, (self.type, self.message))) or self.cause


def fingerprint_of(error: BaseException) -> str:
    """16 hex characters from the exception type and the functions and lines it came through."""
    carried = getattr(error, _CARRIED, None)
    if type(carried) is str:
        return carried
    key: tuple[Any, ...] = (type(error),)
    trace, depth = error.__traceback__, 0
    while trace is not None and depth < _DEEPEST:
        key = key, id(trace.tb_frame.f_code), trace.tb_lasti  # cheaper than to grow a list
        trace, depth = trace.tb_next, depth + 1
    seen = _fingerprints.get(key)
    return seen[0] if seen else _new_fingerprint(error, key)


def carry_fingerprint(error: BaseException, fingerprint: str) -> None:
    """Give an exception the fingerprint it had in the process where it was raised."""
    error.__dict__[_CARRIED] = fingerprint


def fingerprint_of_text(cause: str, text: str) -> str:
    """The fingerprint of a failure that is not an exception: its cause and its kind of reason."""
    return _fingerprint_of_reason(cause, text[:_TEMPLATE_CHARACTERS])


def template_of(text: str) -> str:
    """A reason without what differs from message to message.

    Numbers, times, ids, addresses, hosts and quoted parts become `#`, and a list of them one.
    """
    return _REPEATED.sub(_VARIABLE, _PARTS.sub(_without_values, text))


def _without_values(part: re.Match[str]) -> str:
    word = part[0]
    if word[0] in "'\"`" or "://" in word or "@" in word or any(map(str.isdigit, word)):
        return _VARIABLE
    return _VARIABLE if _HEX.fullmatch(word) or _HOST.fullmatch(word.rstrip(".:")) else word


@lru_cache(maxsize=_FINGERPRINTS_KEPT)
def _fingerprint_of_reason(cause: str, text: str) -> str:
    data = f"{cause}\0{template_of(text)}".encode(errors="replace")
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def describe_exception(
    error: BaseException, fingerprint: str, worker: str, seconds: float, trace: str = ""
) -> str:
    """The attempt record of an exception."""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 - a __str__ that fails, or exits, must not hide the failure
        text = show(error)
    type_ = type(error).__qualname__
    return _record("failure", type_, text, fingerprint, worker, seconds, trace)


def describe_cause(
    cause: str, reason: str, worker: str = "", seconds: float = 0.0, trace: str = ""
) -> str:
    """The attempt record of a failure that is not an exception."""
    fingerprint = fingerprint_of_text(cause, reason)
    return _record(cause, "", reason, fingerprint, worker, seconds, trace)


def describe_redrive(actor: str, trace: str = "") -> str:
    """The record of a dead letter that was sent back; it keeps the lineage."""
    fields = {"c": "redriven", "w": actor, "s": trace}
    return _json(fields)


def describe_replay(actor: str) -> str:
    """The record of a message that is delivered again though it was consumed."""
    return _json({"c": REDRIVEN, "m": REPLAYED, "w": actor})


def formatted(error: BaseException) -> str:
    """The traceback as text, cut in the middle where it is very long."""
    text = redacted(_encodable("".join(traceback.format_exception(error))))
    if len(text) <= _TRACEBACK_CHARACTERS:
        return text
    half = _TRACEBACK_CHARACTERS // 2
    return f"{text[:half]}\n[...]\n{text[-half:]}"


def read_record(record: str) -> list[AttemptError]:
    """The attempt records of a failure record, a line each; a damaged one is skipped."""
    return [error for error in map(read_attempt_record, record.splitlines()) if error is not None]


def latest(errors: Sequence[AttemptError]) -> Sequence[AttemptError]:
    """The attempts since the message was last sent back from the dead letters."""
    sent_back = [number for number, error in enumerate(errors, 1) if error.cause == REDRIVEN]
    return errors[sent_back[-1] :] if sent_back else errors


def read_attempt_record(line: str) -> AttemptError | None:
    """Read an attempt record; None if it is damaged, or there is none."""
    if not line:  # of a first attempt, and so of most
        return None
    try:
        attempt, at_ms, text = line.split(" ", 2)
        at_ms, waits, delay_ms = at_ms.partition("+")
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
            int(at_ms) + int(delay_ms) if waits else None,
        )
    except (ValueError, AttributeError, TypeError):
        return None


def reason_in(record: str) -> str:
    """What a new attempt record says: the exception's type and text, or the reason or cause."""
    return str(read_attempt_record(f"0 0 {record}") or "")


def kind_in(record: str) -> str:
    """The exception's type in a new attempt record, else its cause."""
    error = read_attempt_record(f"0 0 {record}")
    return "" if error is None else error.type or error.cause


def fingerprint_in(record: str) -> str:
    """The fingerprint in a new attempt record."""
    at = record.find(_FINGERPRINT) + len(_FINGERPRINT)
    return record[at : record.find('"', at)]


def _record(
    cause: str, type_: str, message: str, fingerprint: str, worker: str, seconds: float, trace: str
) -> str:
    # A JSON encoder for each record would cost ten times as much.
    instant = seconds < _NO_TIME_S and not trace
    make = _instant if instant else _begin
    if len(message) <= MAX_MESSAGE_BYTES and by_patterns_alone():  # the same for the same text
        make = _remembered[make]
    text = make(cause, type_, fingerprint, worker, message)
    if instant:
        return text
    traced = f',"s":{_quoted(trace)}' if trace else ""
    return f'{text}{traced},"d":{round(seconds, 3)}}}'


def _instant(cause: str, type_: str, fingerprint: str, worker: str, message: str) -> str:
    """The record of a failure that took no time."""
    return f'{_begin(cause, type_, fingerprint, worker, message)},"d":0.0}}'


def _begin(cause: str, type_: str, fingerprint: str, worker: str, message: str) -> str:
    """The beginning of a record."""
    shown = _cut(redacted(message[:_TEMPLATE_CHARACTERS]))
    text = f',"m":{_quoted(shown)}' if shown else ""
    return f"{_head(cause, type_, fingerprint, worker)}{text}"


_remembered = {make: lru_cache(maxsize=4096)(make) for make in (_instant, _begin)}
"""What many failures have in common: the same few fill a bad hour."""


@lru_cache(maxsize=4096)
def _head(cause: str, type_: str, fingerprint: str, worker: str) -> str:
    """The beginning of that, the same for all with the same fingerprint."""
    return _json({"c": cause, "t": _encodable(type_), "f": fingerprint, "w": worker})[:-1]


def _json(fields: Mapping[str, str]) -> str:
    """Those that are not empty."""
    given = {name: value for name, value in fields.items() if value}
    return json.dumps(given, separators=(",", ":"))


def _cut(message: str) -> str:
    if not message.isascii():
        message = _encodable(message)
    if len(message) <= MAX_MESSAGE_BYTES // _MOST_BYTES:
        return message
    data = message.encode(errors="replace")
    short = len(data) <= MAX_MESSAGE_BYTES
    return message if short else data[:MAX_MESSAGE_BYTES].decode(errors="ignore")


def _encodable(text: str) -> str:
    """A file name that is not UTF-8, as in the text of an OSError, becomes escapes."""
    return text.encode(errors="backslashreplace").decode()


def _positions(trace: TracebackType | None) -> list[tuple[CodeType, int]]:
    positions: list[tuple[CodeType, int]] = []
    while trace is not None and len(positions) < _DEEPEST:
        positions.append((trace.tb_frame.f_code, trace.tb_lineno))
        trace = trace.tb_next
    return positions


_fingerprints: dict[tuple[Any, ...], tuple[str, list[tuple[CodeType, int]]]] = {}
"""By type and positions in code, each named by its id: hashing code costs more than walking a
traceback. The value holds the code, so that no other code gets the same id."""


def _new_fingerprint(error: BaseException, key: tuple[Any, ...]) -> str:
    type_, positions = type(error), _positions(error.__traceback__)
    # File names differ between machines and line numbers between releases; functions rarely do.
    names = [f"{code.co_qualname}:{line - code.co_firstlineno}" for code, line in positions]
    text = "\n".join([str(type_.__module__), type_.__qualname__, *names])  # some have None
    found = hashlib.blake2b(_encodable(text).encode(), digest_size=8).hexdigest()
    if len(_fingerprints) >= _FINGERPRINTS_KEPT:
        _fingerprints.clear()
    _fingerprints[key] = found, positions
    return found
