"""Reading what is broadcast, and counting what became of it."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rqretry.protocol.command import Argument, Command, call, number, query, text
from rqretry.protocol.keys import GroupKeys, PartitionKeys

START = "0-0"
_KEPT = re.compile(r"[0-9]{1,15}-[0-9]{1,15} [0-9]{1,15}", re.ASCII)


class Mark(NamedTuple):
    """A position in what one partition broadcasts."""

    id: str
    """Of the last entry before it."""
    passed: int
    """Messages before it."""

    def behind(self, other: "Mark") -> bool:
        """Whether the other one cannot have come before it."""
        mine, its = (tuple(map(int, mark.id.split("-"))) for mark in (self, other))
        return mine > its or self.passed > other.passed


class Entry(NamedTuple):
    """One entry of the stream: the messages of one call."""

    id: str
    first: int
    """The running number of its first message."""
    messages: list[tuple[str, bytes]]

    @property
    def end(self) -> Mark:
        """The position after this entry."""
        return Mark(self.id, self.first + len(self.messages))


def now_at(keys: PartitionKeys) -> Command[Mark]:
    """The position after which everything is still to be published."""
    return query(_mark, "HMGET", keys.meta, "cast_ms", "cast_seq", "cast_count")


def kept_at(keys: GroupKeys, reader: str) -> Command[Mark | None]:
    """The position that a consumer of this name has kept."""
    return query(_kept, "HGET", keys.positions, reader)


def keep_at(keys: GroupKeys, reader: str, mark: Mark) -> Command[int]:
    """Keep a position under the consumer's name."""
    arguments = ("HSET", keys.positions, reader, f"{mark.id} {mark.passed}")
    return Command("keep_at", (keys.positions,), (), int, arguments=arguments)


def read_after(keys: PartitionKeys, mark: Mark, *, count: int) -> Command[list[Entry]]:
    """The entries after a position, oldest first, without waiting."""
    return query(_entries, "XRANGE", keys.broadcast, f"({mark.id}", "+", "COUNT", count)


def wait_arguments(
    marks: Sequence[tuple[PartitionKeys, Mark]], *, count: int, block_ms: int
) -> tuple[Argument, ...]:
    """The request that waits for entries after these positions, of one server."""
    streams = [keys.broadcast for keys, _ in marks]
    ids = [mark.id for _, mark in marks]
    return ("XREAD", "COUNT", count, "BLOCK", block_ms, "STREAMS", *streams, *ids)


def read_waited(reply: Any) -> dict[str, list[Entry]]:
    """The reply to it: entries by stream."""
    return {text(stream): _entries(entries) for stream, entries in reply or ()}


def tally(keys: GroupKeys, counts: Mapping[str, int]) -> Command[int]:
    """Add to the counters of a group."""
    flat = [argument for pair in counts.items() for argument in pair]
    return call(keys.scripts, "tally", (keys.group, *flat), int)


def _mark(reply: list[Any]) -> Mark:
    ms, seq, count = (number(value) or 0 for value in reply)
    return Mark(f"{ms}-{seq}", count)


def _kept(reply: bytes | None) -> Mark | None:
    id_, _, passed = text(reply or b"").partition(" ")
    return Mark(id_, int(passed)) if _KEPT.fullmatch(f"{id_} {passed}") else None


def _entries(reply: list[Any]) -> list[Entry]:
    return [_entry(*one) for one in reply]


def _entry(id_: bytes, fields: list[bytes]) -> Entry:
    pairs = zip(fields[2::2], fields[3::2], strict=True)
    return Entry(text(id_), int(float(fields[1])), [(text(one), body) for one, body in pairs])
