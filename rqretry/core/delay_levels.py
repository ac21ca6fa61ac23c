"""The delay levels: a table of times, counted from 1, that messages wait by.

The default is RocketMQ's table of 18. A namespace has one table; messages of one level wait in one
sorted set (docs/decisions/0012-delay-levels-and-their-index.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from rqretry.core.durations import Duration, compact, milliseconds
from rqretry.core.errors import CodecError, refuse, show

MAX_LEVELS = 64
MIN_LEVEL_MS = 1
MAX_LEVEL_MS = 40 * 86_400_000


@dataclass(frozen=True, slots=True)
class LevelTable:
    """Times in milliseconds, strictly ascending; level 1 is `ms[0]`.

    Raises:
        InvalidArgument: No level or more than 64, a time outside 1 ms to 40 days, or
            times that do not ascend.
    """

    ms: tuple[int, ...]

    def __post_init__(self) -> None:
        _check(self.ms)

    @classmethod
    def parse(cls, levels: str | Sequence[Duration]) -> "LevelTable":
        """Read "1s 5s 10s" or a sequence of durations; raises InvalidArgument."""
        parts: object = levels.split() if isinstance(levels, str) else levels
        if isinstance(parts, bytes | bytearray) or not isinstance(parts, Sequence):
            refuse("delay_levels", levels, 'must be a list, or text as "1s 5s 10s"')
        if len(parts) > MAX_LEVELS:
            _refuse_count(len(parts))
        return cls(
            tuple(
                milliseconds(part, name=f"delay_levels: level {level}")
                for level, part in enumerate(parts, start=1)
            )
        )

    @classmethod
    def decode(cls, stored: str) -> "LevelTable":
        """Read what `encode` wrote; raises CodecError if the text is damaged."""
        try:
            return cls(tuple(int(part) for part in stored.split(" ")))
        except ValueError as error:
            message = f"the stored level table {show(stored)} is damaged"
            raise CodecError(message) from error

    def encode(self) -> str:
        """Milliseconds with one space between them, as the store keeps the table."""
        return " ".join(map(str, self.ms))

    def delay_ms(self, level: int) -> int:
        """The time of a level, in milliseconds; above the table, that of the last."""
        if level < 1:
            refuse("level", level, "must be 1 or more")
        return self.ms[min(level, len(self.ms)) - 1]

    def __len__(self) -> int:
        return len(self.ms)

    def __str__(self) -> str:
        return " ".join(map(compact, self.ms))


def _check(table: tuple[int, ...]) -> None:
    if not 1 <= len(table) <= MAX_LEVELS:
        _refuse_count(len(table))
    for level, time_ms in enumerate(table, start=1):
        if not MIN_LEVEL_MS <= time_ms <= MAX_LEVEL_MS:
            rule = "must be between 1 ms and 40 days"
            refuse(f"delay_levels: level {level}", f"{time_ms} ms", rule)
    for level, (before, after) in enumerate(pairwise(table), start=2):
        if after <= before:
            rule = f"must be longer than the level before it, {compact(before)}"
            refuse(f"delay_levels: level {level}", compact(after), rule)


def _refuse_count(count: int) -> None:
    refuse("delay_levels: the number of levels", count, f"must be 1 to {MAX_LEVELS}")


DEFAULT_LEVELS = LevelTable.parse("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")
