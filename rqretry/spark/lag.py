"""How far a reader of the history is behind, and when what it has not read will be trimmed."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rqretry.spark.offsets import Bounds, Histories, TopicPartition
from rqretry.spark.position import ABOUT, Position

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


def behind_latest(progress: Any) -> dict[str, int]:
    """How far a streaming query is behind, by "topic/partition".

    Args:
        progress: A StreamingQueryProgress, as `lastProgress` and listeners give it.

    Returns:
        How many entries of each history were not read by the batch: calls, each with its messages.
    """
    behind: dict[str, int] = {}
    for source in progress["sources"]:
        latest, end = (_numbers(source[name]) for name in ("latestOffset", "endOffset"))
        behind |= {name: max(0, n - end.get(name, 1)) for name, n in latest.items()}
    return behind


def _numbers(offsets: Any) -> dict[str, int]:
    """The number of the next entry, of each history; nothing where they are another source's."""
    found = json.loads(offsets) if isinstance(offsets, str) else offsets
    if not isinstance(found, dict) or ABOUT not in found:
        return {}
    return {
        f"{topic}/{partition}": max(1, Position.parse(text).number)
        for topic, parts in found.items()
        if not topic.startswith(ABOUT)
        for partition, text in parts.items()
    }
