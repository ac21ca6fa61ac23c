"""Sums over messages of what became of them, in each of many simulations."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt

from rqretry.spark.failure_model import Floats
from rqretry.spark.forecast import Played

_STEP = 0.01
"""Times are counted by their logarithm, in steps of one percent."""
_CERTAINTY = 0.9
LOW, LIKELY, HIGH = "low", "likely", "high"
_SUMS = ("committed", "dead", "unfinished", "deliveries", "busy", "handled", "total")

SCENARIOS = (LOW, LIKELY, HIGH)
Counts = npt.NDArray[np.int64]


@dataclass(slots=True)
class Tally:
    """The sums of one policy in one group.

    Attributes:
        size: How many simulations.
        window: How long deliveries are counted for the peak, in ms.
        messages: How many messages.
        drawn: How many of them had a delivery whose end was drawn.
        sums: committed, dead, unfinished, deliveries, busy (handlers), handled (messages of which
            that is known) and total (time to success), each in every simulation.
        longest: The longest time to success.
        times: How many messages took so long; by the step of the time's logarithm.
        begun: How many deliveries began; by the window.
    """

    size: int
    window: float
    messages: int = 0
    drawn: int = 0
    sums: dict[str, Floats] = field(default_factory=dict)
    longest: Floats = field(default_factory=lambda: np.zeros(0))
    times: dict[int, Counts] = field(default_factory=dict)
    begun: dict[int, Counts] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin at nothing."""
        for name in _SUMS:
            self.sums.setdefault(name, np.zeros(self.size))
        self.longest = self.longest if len(self.longest) else np.zeros(self.size)

    def add(self, played: Played) -> None:
        """More messages."""
        self.messages += len(played.took)
        self.drawn += played.drawn
        known = ~np.isnan(played.took)
        took = np.where(known, played.took, 0.0)
        unfinished = ~(played.committed | played.dead)
        busy, handled = np.nan_to_num(played.busy), ~np.isnan(played.busy)
        counted = (
            played.committed, played.dead, unfinished, played.deliveries, busy, handled, took
        )  # fmt: skip
        for name, values in zip(_SUMS, counted, strict=True):
            self.sums[name] += values.sum(axis=0)
        self.longest = np.maximum(self.longest, took.max(axis=0))
        steps = np.round(np.log(np.maximum(took[known], 1.0)) / _STEP).astype(np.int64)
        self._count(self.times, steps, np.nonzero(known)[1])
        for at, which in played.begun:
            self._count(self.begun, (at // self.window).astype(np.int64), which)

    def merge(self, other: "Tally") -> None:
        """The sums of other messages; those of one simulation hold in every one."""
        self.messages += other.messages
        self.drawn += other.drawn
        for name in _SUMS:
            self.sums[name] += other.sums[name]
        self.longest = np.maximum(self.longest, other.longest)
        for mine, more in ((self.times, other.times), (self.begun, other.begun)):
            for place, counts in more.items():
                mine[place] = mine.get(place, np.zeros(self.size, np.int64)) + counts

    def figures(self) -> dict[str, Floats]:
        """Every figure in each simulation; times are seconds."""
        found = {name: self.sums[name] for name in ("committed", "dead", "unfinished")}
        found["deliveries"] = self.sums["deliveries"]
        handled = self.sums["handled"] > 0
        found["handler_seconds"] = np.where(handled, self.sums["busy"] / 1000, np.nan)
        found["peak"] = np.max([*self.begun.values()], axis=0, initial=0).astype(float)
        found |= {"to_success_p50": self._percentile(0.5), "to_success_p95": self._percentile(0.95)}
        done = self.sums["committed"] > 0
        found["to_success_longest"] = np.where(done, self.longest / 1000, np.nan)
        counted = np.sum([*self.times.values()], axis=0) if self.times else np.zeros(self.size)
        with np.errstate(invalid="ignore", divide="ignore"):
            found["to_success_mean"] = self.sums["total"] / counted / 1000
        return found

    def row(self, scenario: str) -> dict[str, Any]:
        """The figures at an end of their intervals, or in the middle."""
        found: dict[str, Any] = {"messages": self.messages, "not_known": self.drawn}
        for name, values in self.figures().items():
            value = ends(values)[SCENARIOS.index(scenario)]
            found[name] = value if value is None or not value.is_integer() else int(value)
        return found

    def _percentile(self, share: float) -> Floats:
        """Of the times to success, in seconds; not a number where there is none."""
        if not self.times:
            return np.full(self.size, np.nan)
        steps = sorted(self.times)
        sums = np.cumsum([self.times[step] for step in steps], axis=0)
        which = np.argmax(sums >= np.ceil(sums[-1] * share), axis=0)
        times = np.where(np.array(steps) > 0, np.exp(np.array(steps) * _STEP), 0.0) / 1000
        return np.where(sums[-1] > 0, np.minimum(times[which], self.longest / 1000), np.nan)

    def _count(self, counts: dict[int, Counts], places: Counts, which: Counts) -> None:
        found, numbers = np.unique(places, return_inverse=True)
        cells = numbers * self.size + which
        table = np.bincount(cells, minlength=len(found) * self.size).reshape(-1, self.size)
        for place, row in zip(found.tolist(), table, strict=True):
            counts[place] = counts[place] + row if place in counts else row.copy()

    def packed(self) -> bytes:
        """As bytes, for the driver."""
        fields: list[Any] = [self.size, self.window, self.messages, self.drawn]
        fields += [[self.sums[name].tobytes() for name in _SUMS], self.longest.tobytes()]
        fields += [{k: v.tobytes() for k, v in m.items()} for m in (self.times, self.begun)]
        packed: bytes = msgpack.packb(fields)
        return packed

    @classmethod
    def unpacked(cls, data: bytes) -> "Tally":
        """What `packed` made."""
        size, window, messages, drawn, sums, longest, times, begun = msgpack.unpackb(
            data, strict_map_key=False
        )
        return cls(
            size, window, messages, drawn,
            {name: _floats(one) for name, one in zip(_SUMS, sums, strict=True)},
            _floats(longest), _counts(times), _counts(begun),
        )  # fmt: skip


def ends(values: Floats) -> list[float | None]:
    """The lower end, the middle and the upper end of the interval of a figure."""
    known = np.sort(values[~np.isnan(values)])
    if not len(known):
        return [None] * len(SCENARIOS)
    outside = max(1, int((len(known) + 1) * (1 - _CERTAINTY) / 2))  # so certainly one more is held
    return [float(known[place]) for place in (outside - 1, len(known) // 2, -outside)]


def _floats(data: bytes) -> Floats:
    return np.frombuffer(data, np.float64).copy()


def _counts(found: Mapping[int, bytes]) -> dict[int, Counts]:
    return {place: np.frombuffer(data, np.int64).copy() for place, data in found.items()}
