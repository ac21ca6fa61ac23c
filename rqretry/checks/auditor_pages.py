"""Reading whole keys in bounded pages, for the auditor. No I/O here: operations."""

from collections.abc import Iterable
from typing import Any

from rqretry.protocol.command import Argument, Command, Operation

PAGE = 500
PAGE_BYTES = 1024 * 1024


def read_list(key: str) -> Operation[list[str]]:
    """The members of a list, in order."""
    members: list[str] = []
    while True:
        page: list[bytes] = yield _read("LRANGE", key, len(members), len(members) + PAGE - 1)
        members += map(_text, page)
        if len(page) < PAGE:
            return members


def read_scores(key: str) -> Operation[dict[str, float]]:
    """The members of a sorted set with their scores."""
    scores: dict[str, float] = {}
    cursor = b"0"
    while True:
        cursor, flat = yield _read("ZSCAN", key, cursor, "COUNT", PAGE)
        scores.update((_text(member), float(score)) for member, score in _pairs(flat))
        if cursor == b"0":
            return scores


def read_hash(key: str, *, with_values: bool = True) -> Operation[dict[str, str]]:
    """The fields of a hash; without their values, which may be large, on request.

    Values are sent anyway (HSCAN NOVALUES needs Redis 7.4), so pages shrink with their size.
    """
    fields: dict[str, str] = {}
    cursor, count = b"0", PAGE if with_values else 16
    while True:
        cursor, flat = yield _read("HSCAN", key, cursor, "COUNT", count)
        page = _pairs(flat)
        fields.update((_text(name), _text(value) if with_values else "") for name, value in page)
        if cursor == b"0":
            return fields
        count = _next_count(page)


def _next_count(page: list[tuple[bytes, bytes]]) -> int:
    mean = sum(len(value) for _, value in page) // len(page) if page else 0
    return max(1, min(PAGE, PAGE_BYTES // (mean + 1)))


def _read(*arguments: Argument) -> Command[Any]:
    return Command("read", (), (), lambda reply: reply, arguments=arguments)


def _pairs(flat: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
    items = iter(flat)
    return list(zip(items, items, strict=True))


def _text(value: bytes) -> str:
    # Ids are ASCII; a group's byte is any byte but 0, and must stay one character.
    return value.decode("latin-1")
