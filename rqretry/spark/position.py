"""Positions in a partition's history, and their JSON form for users and checkpoints.

A position is the next event to read: an entry of the stream, "milliseconds-number", and the index
of the event in that entry (docs/decisions/0025-history.md). So a range goes from one position up
to, but not including, another, and a time in milliseconds is a position too.
"""

import json
import re
from collections.abc import Mapping
from typing import NamedTuple

from rqretry.core.errors import InvalidArgument, refuse, show
from rqretry.core.limits import check_topic, read_whole

EARLIEST, LATEST = "earliest", "latest"
_KAFKA = {-2: EARLIEST, -1: LATEST}
_TEXT = re.compile(r"([0-9]{1,16})(?:-([0-9]{1,18})(?::([0-9]{1,9}))?)?")


class Position(NamedTuple):
    """Where to read next."""

    ms: int = 0
    number: int = 0
    item: int = 0
    """Of the event in its entry."""

    @classmethod
    def parse(cls, text: str) -> "Position":
        """Read "ms", "ms-number" or "ms-number:item". Raises InvalidArgument."""
        match = _TEXT.fullmatch(text)
        if match is None:
            refuse("offset", text, "must be like 1732190400000-0:0 (or a time in milliseconds)")
        return cls(*(int(part or 0) for part in match.groups()))

    @classmethod
    def after(cls, entry: str) -> "Position":
        """The position behind a whole entry."""
        ms, _, number = entry.partition("-")
        return cls(int(ms), int(number) + 1)

    @property
    def entry(self) -> str:
        """The entry's id in the stream."""
        return f"{self.ms}-{self.number}"

    def __str__(self) -> str:
        return f"{self.entry}:{self.item}"


Offsets = dict[str, dict[str, str]]
"""{topic: {partition: position}}, as in checkpoints and in startingOffsets."""
ABOUT = "@"
"""What names in offsets begin with that are no topics; no topic's does."""
Wanted = str | Offsets
"""startingOffsets or endingOffsets: one position for all partitions, or one for each."""


def read_offsets(name: str, text: str) -> Wanted:
    """The value of an option: "earliest", "latest", or JSON. Raises InvalidArgument."""
    if text.strip().lower() in (EARLIEST, LATEST):
        return text.strip().lower()
    rule = f'must be "{EARLIEST}", "{LATEST}", or JSON such as {{"flights": {{"0": "{EARLIEST}"}}}}'
    try:
        given = json.loads(text)
    except ValueError:
        refuse(name, text, rule)
    if not isinstance(given, Mapping) or not given:
        refuse(name, text, rule)
    return {check_topic(topic): _partitions(name, text, parts) for topic, parts in given.items()}


def _partitions(name: str, text: str, parts: object) -> dict[str, str]:
    if not isinstance(parts, Mapping):
        refuse(name, text, 'must map each topic to its partitions, as in {"0": "earliest"}')
    found: dict[str, str] = {}
    for number, value in parts.items():
        partition = read_whole(number) if isinstance(number, str) else None
        if partition is None:
            refuse(name, number, "is not a partition number")
        found[str(partition)] = _position_text(name, value)
    return found


def _position_text(name: str, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = _KAFKA.get(value, str(value))
    if not isinstance(value, str):
        refuse(name, value, "is not a position: write it as text")
    if value in (EARLIEST, LATEST):
        return value
    try:
        return str(Position.parse(value))
    except InvalidArgument as error:
        raise InvalidArgument(f"{name} {show(value)}: {error}") from None


def read_positions(offsets: Mapping[str, Mapping[str, str]]) -> dict[tuple[str, int], Position]:
    """The positions in the offsets of a checkpoint, by topic and partition."""
    return {
        (topic, int(number)): Position.parse(text)
        for topic, parts in offsets.items()
        if not topic.startswith(ABOUT)
        for number, text in parts.items()
    }
