"""How far a reader of the history is behind, and when what it has not read will be trimmed."""

from collections.abc import Mapping
from dataclasses import dataclass

from rqretry.spark.offsets import Bounds, Histories, TopicPartition
from rqretry.spark.position import Position

DEFAULT_LIMIT = 64 * 1024 * 1024
"""Bytes of history that a partition keeps by default (docs/decisions/0025-history.md)."""
_COUNTED = 1_000_000


@dataclass(frozen=True, slots=True)
class Lag:
    """One partition.

    Attributes:
        topic, partition: Which.
        position: The next event to archive.
        events: How many wait to be archived; at most a million are counted.
        seconds: The time between the first of them and the newest event; 0 without any.
        trimmed_in_seconds: When the first event that waits will be trimmed, if events come as fast
            as in the history that is kept; None if that is unknown.
        dropped: Entries of the history that were trimmed so far, archived or not.
    """

    topic: str
    partition: int
    position: str
    events: int
    seconds: float
    trimmed_in_seconds: float | None
    dropped: int


def lags(histories: Histories, ends: Mapping[TopicPartition, Position]) -> list[Lag]:
    """For each partition that is read."""
    found: list[Lag] = []
    for partition, known in sorted(histories.bounds().items()):
        position = max(ends.get(partition, known.begin), known.begin)
        _, events = histories.walk(partition, position, known.end, _COUNTED)
        behind_ms = max(0, known.end.ms - position.ms) if events else 0
        trimmed = _trimmed_in(known, behind_ms)
        dropped = known.kept.dropped
        found.append(Lag(*partition, str(position), events, behind_ms / 1000, trimmed, dropped))
    return found


def _trimmed_in(known: Bounds, behind_ms: int) -> float | None:
    span_ms = known.end.ms - known.begin.ms
    if span_ms <= 0 or known.kept.bytes <= 0:
        return None
    bytes_per_ms = known.kept.bytes / span_ms
    limit = DEFAULT_LIMIT if known.kept.limit is None else known.kept.limit
    left = limit - bytes_per_ms * behind_ms
    return round(max(0.0, left / bytes_per_ms / 1000), 1)
