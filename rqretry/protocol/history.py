"""What readers of whole partitions ask: the history in bulk, the stored bodies, and lanes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from rqretry.core.message_id import spell_ids
from rqretry.protocol.command import Command, number, query, text
from rqretry.protocol.keys import PartitionKeys

Entry = tuple[bytes, list[bytes]]
"""An entry of the history as the server answers it: its id, and names and values in turn."""
_IDS, _BLOB = 7, 11


class Kept(NamedTuple):
    """How much of its history a partition keeps.

    Attributes:
        lost: The last entry that was dropped to stay within the limit; "" if none was.
        dropped: How many entries were.
        bytes: What the kept ones take.
        limit: How much they may take; None for the default.
        entries: The number of the newest one: how many there ever were.
        epoch: When the history began; another one where the topic was made anew, "" if unknown.
    """

    lost: str
    dropped: int
    bytes: int
    limit: int | None
    entries: int = 0
    epoch: str = ""


def entries(keys: PartitionKeys, *, start: str, end: str, count: int) -> Command[list[Entry]]:
    """Entries from one stream id to another, oldest first, as the server answers them."""
    return query(_entries, "XRANGE", keys.events, start, end, "COUNT", count)


def first_entry(keys: PartitionKeys) -> Command[str]:
    """The id of the oldest entry that is kept; "" if none is."""
    return query(_entry_id, "XRANGE", keys.events, "-", "+", "COUNT", 1)


def entry_before(keys: PartitionKeys, entry: str) -> Command[str]:
    """The id of the newest entry before one; "" if none is kept."""
    return query(_entry_id, "XREVRANGE", keys.events, f"({entry}", "-", "COUNT", 1)


def last_entry(keys: PartitionKeys) -> Command[str]:
    """The id of the newest entry; "" if there is none."""
    return query(_entry_id, "XREVRANGE", keys.events, "+", "-", "COUNT", 1)


def kept(keys: PartitionKeys) -> Command[Kept]:
    """How much of its history a partition keeps."""
    return query(_kept, "HMGET", keys.meta, *Kept._fields[:-2], "seq", "epoch")


def scan_bodies(
    keys: PartitionKeys, cursor: int, count: int
) -> Command[tuple[int, list[tuple[str, bytes]]]]:
    """Some of the stored bodies and the cursor of the next ones, 0 at the end (HSCAN)."""
    return query(_scanned, "HSCAN", keys.bodies, cursor, "COUNT", count)


def read_lanes(keys: PartitionKeys, producers: Sequence[str]) -> Command[list[tuple[int, str]]]:
    """The number and checksum of the last call of each lane; (0, "") where there was none."""
    lanes = tuple(keys.lane(producer) for producer in producers)
    return query(_lanes, "MGET", *lanes)


def _entries(reply: list[Entry]) -> list[Entry]:
    for _, flat in reply:
        unpack_entry(flat)
    return reply


def unpack_entry(flat: list[bytes]) -> None:
    """Spell the ids of an entry (its names and values) that has them packed (producing.publish)."""
    if flat[_BLOB] and not flat[_IDS]:
        flat[_IDS], flat[_BLOB] = spell_ids(flat[_BLOB]), b""


def _entry_id(reply: list[Entry]) -> str:
    return text(reply[0][0]) if reply else ""


def _kept(reply: list[bytes | None]) -> Kept:
    lost, dropped, size, limit, entries, epoch = reply
    return Kept(
        text(lost or b""), number(dropped) or 0, number(size) or 0, number(limit),
        number(entries) or 0, text(epoch or b""),
    )  # fmt: skip


def _scanned(reply: list[Any]) -> tuple[int, list[tuple[str, bytes]]]:
    flat = reply[1]
    return int(reply[0]), [(text(flat[i]), flat[i + 1]) for i in range(0, len(flat) - 1, 2)]


def _lanes(reply: list[bytes | None]) -> list[tuple[int, str]]:
    found = []
    for value in reply:
        seq, _, rest = text(value or b"0").partition(" ")
        found.append((int(seq), rest.partition(" ")[0]))
    return found
