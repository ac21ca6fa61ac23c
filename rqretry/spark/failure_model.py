"""Why deliveries fail, estimated from an archive: the model of failures of simulate.

Failures of one kind (one fingerprint) have up to four sources. *Outages* are times in which every
delivery fails, or most do. Outside of them a message may be *permanent*: it fails whenever it is
tried. It may be *early*: it fails until a time of its own has come. Every other delivery fails by
*chance*. Which of these a kind has is decided by the Bayesian information criterion, and how often
each occurs by expectation maximisation; how certain that is, is drawn (failure_draws.py). Times are
milliseconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
SUCCESS = -1
"""In place of the number of a kind."""
_OUTAGE_RATE, _DOUBT = 0.9, 4.0
_ROUNDS, _STEPS = 4, 40
_HALF = 0.5
_GAPS = 20
_TINY = 1e-9
_SHAPES = (0.5, 1.0, 2.0, 4.0)
_SCALES = 24
PERMANENT, EARLY = 1, 2


class Trials(NamedTuple):
    """Deliveries of many messages.

    Attributes:
        message: The number of the message of each.
        at: When each began.
        kind: The number of its kind of failure, or SUCCESS.
        first: Whether it was the first of its message.
    """

    message: npt.NDArray[np.int64]
    at: Floats
    kind: npt.NDArray[np.int64]
    first: Flags

    def at_places(self, places: Any) -> "Trials":
        """Some of them, or in another order."""
        message, at, kind, first = (column[places] for column in self)
        return Trials(message, at, kind, first)


class Outage(NamedTuple):
    """A time in which deliveries fail; its edges lie somewhere between two deliveries.

    Attributes:
        begin: The success before it, and the failures behind that, in time.
        end: The success behind it, and the failures before that, from the last one on; if it had
            not ended, an infinite time instead of the success.
        failed, succeeded: What became of the first deliveries in it.
    """

    begin: "Edge"
    end: "Edge"
    failed: int
    succeeded: int

    @property
    def outside(self) -> tuple[float, float]:
        """The successes before and behind it."""
        return float(self.begin.at[0]), float(self.end.at[0])

    @property
    def inside(self) -> tuple[float, float]:
        """Its first and its last failure."""
        return float(self.begin.at[1]), float(self.end.at[1])


class Edge(NamedTuple):
    """Where an outage begins or ends: in a gap between these deliveries, the outermost one first.

    Attributes:
        at: When they were.
        anyway: Which of them may have failed in any case: retries of what never succeeded.
    """

    at: Floats
    anyway: Flags


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of failure: estimates, or many draws of each of them.

    Attributes:
        outages: When it was out.
        chance: How often a delivery fails by chance.
        permanent, early: The share of messages.
        scale, shape: Of the log-logistic distribution of how long a message is early.
    """

    outages: tuple[Outage, ...]
    chance: Any = 0.0
    permanent: Any = 0.0
    early: Any = 0.0
    scale: Any = 1.0
    shape: Any = 1.0

    def early_at(self, elapsed: Floats) -> Floats:
        """The probability that an early message is no longer early after so long."""
        with np.errstate(divide="ignore", over="ignore"):
            ratio: Floats = (np.maximum(elapsed, 0) / self.scale) ** -self.shape
        return 1 / (1 + ratio)

    def early_for(self, share: Floats) -> Floats:
        """The opposite: after how long this share of early messages is no longer early."""
        share = np.clip(share, _TINY, 1 - _TINY)
        lasted: Floats = self.scale * (share / (1 - share)) ** (1 / self.shape)
        return lasted

    def sources(self, seen: "Seen") -> tuple[Floats, Floats, Floats]:
        """How probable chance, permanent and early are, with what is seen of each message."""
        p = self.chance
        chance = (1 - self.permanent - self.early) * p**seen.failed * (1 - p) ** seen.succeeded
        never = seen.succeeded == 0
        tried = seen.failed > 0
        permanent = self.permanent * np.where(never, 1.0, 0.0)
        span = self.early_at(seen.until) - self.early_at(seen.since)
        early = self.early * np.where(tried | never, np.maximum(span, 0), 0.0)
        return chance, permanent, early


class Seen(NamedTuple):
    """What is seen of messages outside of outages, in arrays.

    Attributes:
        failed, succeeded: How many of its deliveries did.
        since: When the last one failed, after its first delivery.
        until: When the first one succeeded; infinite if none did.
    """

    failed: Floats
    succeeded: Floats
    since: Floats
    until: Floats

    def at_places(self, places: Any) -> "Seen":
        """Of some of them."""
        return Seen(*(column[places] for column in self))


def fit(trials: Trials, kinds: int) -> list[tuple[Kind, Seen]]:
    """Estimate each kind; what failed in another way says nothing about it."""
    found = []
    for number in range(kinds):
        mine = (trials.kind == number) | (trials.kind == SUCCESS)
        found.append(fit_kind(trials.at_places(mine)))
    return found


def fit_kind(trials: Trials) -> tuple[Kind, Seen]:
    """Estimate one kind from the deliveries that failed in this way or succeeded."""
    order = np.argsort(trials.at, kind="stable")
    trials = trials.at_places(order)
    outages = _outages(trials, trials.kind != SUCCESS)
    seen = seen_of(trials, outages)
    kind, best = Kind(tuple(outages)), np.inf
    for sources in ((), (PERMANENT,), (EARLY,), (PERMANENT, EARLY)):
        candidate, likelihood = _maximised(kind, seen, sources)
        parameters = 1 + (PERMANENT in sources) + 3 * (EARLY in sources)
        score = parameters * np.log(max(2, len(seen.failed))) - 2 * likelihood
        if score < best - _TINY:
            kind, best = candidate, score
    return kind, seen


def seen_of(trials: Trials, outages: Sequence[Outage]) -> Seen:
    """What is seen of each message outside of outages."""
    start = np.full(trials.message.max(initial=-1) + 1, np.inf)
    np.minimum.at(start, trials.message, trials.at)
    outside = np.ones(len(trials.at), bool)
    for one in outages:
        before, behind = one.outside
        outside &= (trials.at <= before) | (trials.at >= behind)
    bad = outside & (trials.kind != SUCCESS)
    good = outside & (trials.kind == SUCCESS)
    elapsed = trials.at - start[trials.message]
    size = len(start)
    since, until = np.zeros(size), np.full(size, np.inf)
    np.maximum.at(since, trials.message[bad], elapsed[bad])
    np.minimum.at(until, trials.message[good], elapsed[good])
    failed = np.bincount(trials.message[bad], minlength=size).astype(float)
    succeeded = np.bincount(trials.message[good], minlength=size).astype(float)
    used = (failed + succeeded) > 0
    return Seen(failed[used], succeeded[used], since[used], until[used])


def _maximised(before: Kind, seen: Seen, sources: tuple[int, ...]) -> tuple[Kind, float]:
    """Expectation maximisation with these sources beside chance; and the log-likelihood."""
    count = max(1, len(seen.failed))
    share = float((seen.failed > 0).sum()) / count / (1 + len(sources))
    kind = Kind(
        before.outages, _chance(seen.failed.sum() * _HALF, seen.succeeded.sum()),
        share if PERMANENT in sources else 0.0, share if EARLY in sources else 0.0,
        *_start_of_early(seen),
    )  # fmt: skip
    for step in range(_STEPS):
        weights = np.stack(kind.sources(seen))
        chance, permanent, early = weights / np.maximum(weights.sum(axis=0), _TINY * _TINY)
        scale, shape = kind.scale, kind.shape
        if EARLY in sources and step % 4 == 0:
            scale, shape = _early_fit(seen, early)
        kind = Kind(
            before.outages, _chance((chance * seen.failed).sum(), (chance * seen.succeeded).sum()),
            float(permanent.sum()) / count, float(early.sum()) / count, scale, shape,
        )  # fmt: skip
    total = np.stack(kind.sources(seen)).sum(axis=0)
    return kind, float(np.log(np.maximum(total, _TINY * _TINY)).sum())


def _chance(failed: float, succeeded: float) -> float:
    return float(failed + _HALF) / float(failed + succeeded + 1)


def _start_of_early(seen: Seen) -> tuple[float, float]:
    known = seen.until[(seen.failed > 0) & np.isfinite(seen.until)]
    return (float(np.median(known)) if len(known) else 1.0), 1.0


def _early_fit(seen: Seen, weight: Floats) -> tuple[float, float]:
    """The best scale and shape of a grid."""
    used = weight > _TINY
    grid, spans = early_grid(seen.at_places(used))
    scale, shape = grid[int(np.argmax(spans @ weight[used]))]
    return float(scale), float(shape)


def early_grid(seen: Seen) -> tuple[Floats, Floats]:
    """Scales and shapes, and the log of how probable each makes what is seen of each message."""
    ends = np.concatenate([seen.since, seen.until[np.isfinite(seen.until)]])
    ends = ends[ends > 0]
    if not len(ends):
        return np.ones((1, 2)), np.zeros((1, len(seen.since)))
    scales = np.geomspace(ends.min() / 2, ends.max() * 2, _SCALES)
    grid = np.array([(scale, shape) for scale in scales for shape in _SHAPES])
    kind = Kind((), scale=grid[:, :1], shape=grid[:, 1:])
    span = kind.early_at(seen.until) - kind.early_at(seen.since)
    return grid, np.log(np.maximum(span, _TINY))


def _outages(trials: Trials, bad: Flags) -> list[Outage]:
    """Where first deliveries failed one after the other, more than the rest lets expect."""
    decisive = trials.first | ~bad  # later failures say little: their messages may fail anyway
    at, failed = trials.at[decisive], bad[decisive]
    first = trials.first[decisive]
    spans: list[tuple[int, int]] = []
    for _ in range(_ROUNDS):
        outside = first.copy()
        for a, b in spans:
            outside[a : b + 1] = False
        rate = (failed[outside].sum() + _HALF) / (outside.sum() + 1)
        found = _segments(failed, min(float(rate), _HALF))
        if found == spans:
            break
        spans = found
    return [_outage(trials, bad, at[a], at[b]) for a, b in spans]


def _segments(failed: Flags, rate: float) -> list[tuple[int, int]]:
    """The segments that fail rather as in an outage than at this rate."""
    gain, loss = np.log(_OUTAGE_RATE / rate), np.log((1 - _OUTAGE_RATE) / (1 - rate))
    scores = np.full(len(failed), loss)
    scores[failed] = gain
    least = float(np.log(max(2, len(failed)))) + _DOUBT
    found: list[tuple[int, int]] = []
    waiting = [(0, len(scores))]
    while waiting:
        low, high = waiting.pop()
        segment = _best(scores[low:high], least)
        if segment is None:
            continue
        start, end = low + segment[0], low + segment[1]
        found += _parts(scores, start, end, least)
        waiting += [(low, start), (end, high)]
    return sorted(found)


def _best(scores: Floats, least: float) -> tuple[int, int] | None:
    """The segment with the highest sum, if that is not less."""
    if not len(scores):
        return None
    sums = np.concatenate([[0.0], np.cumsum(scores)])
    end = int(np.argmax(sums - np.minimum.accumulate(sums)))
    start = int(np.argmin(sums[: end + 1]))
    return (start, end) if sums[end] - sums[start] >= least else None


def _parts(scores: Floats, start: int, end: int, least: float) -> list[tuple[int, int]]:
    """A segment without the times inside it in which all was well."""
    well = _best(-scores[start:end], least)
    if well is None:
        return [(start, end - 1)]
    left, right = start + well[0], start + well[1]
    return [*_parts(scores, start, left, least), *_parts(scores, right, end, least)]


def _outage(trials: Trials, bad: Flags, first: float, last: float) -> Outage:
    at, good = trials.at, trials.at[~bad]
    before = float(good[good < first].max(initial=first - 1))
    behind = float(good[good > last].min(initial=np.inf))
    lost = np.ones(trials.message.max(initial=-1) + 1, bool)
    lost[trials.message[~bad]] = False
    failures = bad & (before < at) & (at < behind)
    anyway = lost[trials.message] & ~trials.first
    inside = trials.first & (at >= first) & (at <= last)
    return Outage(
        _edge(before, at[failures], anyway[failures]),
        _edge(behind, at[failures][::-1], anyway[failures][::-1]),
        int((inside & bad).sum()),
        int((inside & ~bad).sum()),
    )


def _edge(success: float, failures: Floats, anyway: Flags) -> Edge:
    return Edge(
        np.concatenate([[success], failures[:_GAPS]]),
        np.concatenate([[False], anyway[:_GAPS]]),
    )
