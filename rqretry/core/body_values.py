"""Which values a message body may hold, and the path to one that it may not.

A body is small and flat most of the time, so that case is decided by one short loop
(`is_flat`); everything else takes the walk that can name the value at fault (`check_body`).
"""

import math
from collections.abc import Iterable
from typing import Any, NoReturn

from rqretry.core.errors import CodecError, show
from rqretry.core.limits import MAX_BODY_DEPTH, MAX_BODY_ITEMS

_PLAIN = frozenset({str, int, bool, type(None)})
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1
_LONGEST_PATH = 120


def is_flat(body: object) -> bool:
    """A scalar, or a dict of scalars: nothing left to check but what the packer checks."""
    if type(body) is dict:
        if len(body) > MAX_BODY_ITEMS:
            return False
        for key, value in body.items():
            kind = type(value)
            if type(key) is not str:
                return False
            # Only a finite number minus itself is zero.
            if kind not in _PLAIN and (kind is not float or value - value != 0.0):
                return False
        return True
    return type(body) in _PLAIN


def check_body(body: object, *, closely: bool = False) -> None:
    """Walk the whole body; raises CodecError with the path to the value at fault.

    `closely` also tests what the packer refuses by itself: long ints and broken text.
    """
    try:
        _walk(body, 1, closely)
    except _Fault as fault:
        raise CodecError(f"{_spelled(fault.path)} {fault.reason}") from None


class _Fault(Exception):
    """What is wrong with a value; the callers add the path on the way up."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str | int] = []


def _walk(value: object, depth: int, closely: bool) -> int:  # noqa: FBT001 - a hot path
    """Check a value; returns how many values it holds, shared ones counted each time."""
    if type(value) in _PLAIN and not closely:
        return 0
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise _Fault(f"has the key {show(key)}, which is not str: convert it")
            if closely:
                _check_text(key)
        return _walk_all(value.items(), depth, closely)
    if isinstance(value, list | tuple):
        return _walk_all(enumerate(value), depth, closely)
    _check_scalar(value)
    return 0


def _walk_all(pairs: Iterable[tuple[Any, object]], depth: int, closely: bool) -> int:  # noqa: FBT001
    if depth > MAX_BODY_DEPTH:
        raise _Fault(f"is nested more than {MAX_BODY_DEPTH} levels deep: flatten the body")
    count = 0
    for name, item in pairs:
        try:
            count += 1 + _walk(item, depth + 1, closely)
            if count > MAX_BODY_ITEMS:
                _refuse_count()
        except _Fault as fault:
            fault.path.append(name)
            raise
    return count


def _refuse_count() -> NoReturn:
    raise _Fault(f"is one of more than {MAX_BODY_ITEMS} values: split the message")


def _check_scalar(value: object) -> None:
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, int):
        if not _INT_MIN <= value <= _INT_MAX:
            raise _Fault(f"{show(value)} does not fit into 64 bits: send it as text")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise _Fault(f"is {float(value)}, which JSON does not have: send None or text")
    elif isinstance(value, bytes | bytearray | memoryview):
        raise _Fault("is raw bytes inside JSON: send them as the whole body, or as base64 text")
    elif value is not None:
        kind = type(value).__name__
        raise _Fault(f"{show(value)} is {show(kind)[1:-1]}, no JSON value: convert it first")


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        reason = "holds half of a surrogate pair, which no UTF-8 text can"
        raise _Fault(f"{show(text)} {reason}: repair the text") from None


def _spelled(path: list[str | int]) -> str:
    """The path from the outside in: body.items[3].price."""
    steps = ["body"]
    for name in reversed(path):
        if isinstance(name, str):
            steps.append(
                f".{name}" if name.isascii() and name.isidentifier() else f"[{show(name)}]"
            )
        else:
            steps.append(f"[{name}]")
    text = "".join(steps)
    return text if len(text) <= _LONGEST_PATH else f"{text[:_LONGEST_PATH]}..."
