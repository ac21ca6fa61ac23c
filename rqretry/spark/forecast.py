"""What another retry policy would do with messages, many times over.

The first delivery is the same under every policy, so it ends as it did. How each later one ends is
drawn from the model of failures (failure_model.py), given what was seen of the message. Many
messages are played at once: a table has a row for each, and a column for each simulation; its cells
are numbered row by row.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rqretry.spark.failure_draws import Draws, posterior
from rqretry.spark.failure_model import SUCCESS, Flags, Floats, Kind, Seen, Trials, fit
from rqretry.spark.retry_model import COMMITTED, DEAD, Candidate, Case

MOST_ATTEMPTS = 10_000
"""A message that is tried more often is not followed further."""
_AT_ONCE = 50_000
"""About so many cells at a time: the arrays stay in the processor's cache."""
_KEPT = 1000
_DRAWS = 200
_MOST_KINDS = 30
_OTHERS = "others"

Ints = npt.NDArray[np.int64]


class Played(NamedTuple):
    """What became of messages: a row for each, with a column for each simulation.

    Attributes:
        begun: When the first, second, ... deliveries began, and in which simulations.
        committed, dead: In which simulations it was; if neither, it was unfinished.
        deliveries: How many.
        busy: How long handlers ran; not a number if that is not known.
        took: From ready to committed; not a number if it was not, or that is not known.
        drawn: How many of them had a delivery whose end was drawn.
    """

    begun: Sequence[tuple[Floats, Ints]]
    committed: Flags
    dead: Flags
    deliveries: Ints
    busy: Floats
    took: Floats
    drawn: int


@dataclass(frozen=True, slots=True)
class Model:
    """How deliveries of one group end, and how long they take.

    Attributes:
        names: The kinds of failure; the first ones have the models `kinds` in step.
        kinds: The model of each.
        drawn: The same, each of its parameters as it may be, many times.
        rejects: The kinds by which a handler declares that no retry can help.
        expires: The kinds that are leases that ended.
        took: How long deliveries and their handlers took, of each kind and of SUCCESS.
        late: How long after they were due retries began.
    """

    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    drawn: tuple[Kind, ...]
    rejects: frozenset[int]
    expires: frozenset[int]
    took: Mapping[int, Floats]
    late: Floats
    numbers: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, cases: Sequence[Case]) -> "Model":
        """Estimate it from messages."""
        attempts = [(n, one) for n, case in enumerate(cases) for one in case.attempts]
        counts: dict[str, int] = {}
        for _, one in attempts:
            if one.kind:
                counts[one.kind] = counts.get(one.kind, 0) + 1
        names = sorted(counts, key=lambda name: (-counts[name], name))[:_MOST_KINDS]
        if len(counts) > len(names):
            names.append(_OTHERS)
        numbers = {name: number for number, name in enumerate(names)}
        others = numbers.get(_OTHERS, SUCCESS)
        kind = np.array([numbers.get(o.kind, others) if o.kind else SUCCESS for _, o in attempts])
        firsts = {id(case.attempts[0]) for case in cases}
        trials = Trials(
            np.array([n for n, _ in attempts], np.int64),
            np.array([o.begun for _, o in attempts], float),
            kind.astype(np.int64),
            np.array([id(o) in firsts for _, o in attempts], bool),
        )
        took = np.array([(o.ended - o.begun, o.handler) for _, o in attempts], float)
        late = [o.late for case in cases for o in case.attempts[1:]] or [0]
        fitted, rng = fit(trials, len(names)), np.random.default_rng(len(cases))
        return cls(
            tuple(names),
            tuple(one for one, _ in fitted),
            tuple(posterior(one, seen, _DRAWS, rng) for one, seen in fitted),
            frozenset(numbers.get(o.kind, others) for _, o in attempts if o.rejected),
            frozenset(numbers.get(o.kind, others) for _, o in attempts if o.how == "expire"),
            {n: took[kind == n][:_KEPT] for n in range(SUCCESS, len(names))},
            np.array(late[:_KEPT], float),
            numbers,
        )

    def number(self, kind: str) -> int:
        """The number of a kind; SUCCESS for none."""
        return self.numbers.get(kind, self.numbers.get(_OTHERS, 0)) if kind else SUCCESS


@dataclass(slots=True)
class Forecast:
    """Plays messages of one group under policies, in so many simulations.

    Attributes:
        model: How deliveries end.
        size: How many simulations.
        rng: What they are drawn from.
        rates: Instead of the model, how often the deliveries of each number fail: see `naive`.
        draws: The model of each simulation.
    """

    model: Model
    size: int
    rng: np.random.Generator
    rates: Sequence[float] = ()
    draws: Draws = field(init=False)
    _took: dict[int, Floats] = field(init=False)
    _late: Floats = field(init=False)

    def __post_init__(self) -> None:
        """Draw the model of each simulation."""
        same = np.random.default_rng(self.size)  # every task has the same models
        self.draws = Draws.of(self.model.drawn, self.size, same)
        took = self.model.took.items()
        self._took = {kind: _resampled(seen, self.size, same) for kind, seen in took}
        self._late = _resampled(self.model.late, self.size, same)

    def late(self, which: Ints) -> Floats:
        """How long after they are due deliveries of these simulations begin."""
        return _one_of_each(self._late, which, self.rng)

    def lasting(self, kind: Ints, which: Ints) -> Floats:
        """How long deliveries that end so take, and their handlers, in these simulations."""
        took = np.zeros((len(kind), 2))
        for number in np.unique(kind).tolist():
            mine = np.flatnonzero(kind == number)
            took[mine] = _one_of_each(self._took[number], which[mine], self.rng)
        return took

    @classmethod
    def naive(cls, cases: Sequence[Case], size: int, rng: np.random.Generator) -> "Forecast":
        """One that knows neither outages nor messages that fail for ever, to compare with."""
        failed: dict[int, list[bool]] = {}
        for case in cases:
            for number, one in enumerate(case.attempts[: case.before]):
                failed.setdefault(number, []).append(one.how != "succeed")
        rates = [float(np.mean(failed[number])) for number in sorted(failed)]
        return cls(Model.of(cases), size, rng, rates)

    def play(
        self, cases: Sequence[Case], candidate: Candidate, until: int, *, blind: bool = False
    ) -> Iterator[Played]:
        """What would have become of messages; some of them at a time.

        Args:
            cases: What is known of each.
            candidate: The policy.
            until: The end of the history; where deliveries have no limit, it is followed so far.
            blind: Whether the messages' own deliveries are unknown, the first one, too.
        """
        for some in batched(cases, max(1, _AT_ONCE // self.size)):
            yield _Run(self, some, candidate, until, blind=blind).played()


class _Run:
    """Messages under one policy, in all simulations."""

    def __init__(
        self,
        forecast: Forecast,
        cases: Sequence[Case],
        candidate: Candidate,
        until: int,
        *,
        blind: bool,
    ) -> None:
        self._all, self._cases, self._candidate = forecast, cases, candidate
        self._until, self._blind = until, blind
        self._firsts = [case.attempts[0] for case in cases]
        self._ready = np.array([case.ready for case in cases], float)
        self._start = _column(one.begun for one in self._firsts)
        self._shape = (len(cases), forecast.size)
        self._permanent: dict[int, Flags] = {}
        self._early: dict[int, Floats] = {}
        count = len(cases) * forecast.size
        self._deliveries = np.zeros(count, np.int64)
        self._busy, self._took = np.full(count, np.nan), np.full(count, np.nan)
        self._committed, self._dead = np.zeros(count, bool), np.zeros(count, bool)
        self._expired = np.zeros(count, bool)

    def played(self) -> Played:
        """Deliver until all simulations have ended."""
        cells = np.arange(len(self._busy))
        begun: list[tuple[Floats, Ints]] = []
        at = np.broadcast_to(self._start, self._shape).ravel()
        self._draw_sources()
        for number in range(1, MOST_ATTEMPTS + 1):
            if not len(cells):
                break
            begun.append((at, cells % self._all.size))
            at, cells = self._deliver(at, cells, number)
        sure = () if self._blind else [one for one in self._firsts if one.how == "succeed"]
        return Played(
            begun,
            self._committed.reshape(self._shape),
            self._dead.reshape(self._shape),
            self._deliveries.reshape(self._shape),
            self._busy.reshape(self._shape),
            self._took.reshape(self._shape),
            drawn=len(self._firsts) - len(sure),
        )

    def _deliver(self, at: Floats, cells: Ints, number: int) -> tuple[Floats, Ints]:
        """The deliveries that begin now; when the next ones do, and which."""
        self._deliveries[cells] += 1
        kind, took, handler = self._ends(at, cells, number)
        handled = cells[~np.isnan(handler)]
        self._busy[handled] = np.nan_to_num(self._busy[handled]) + handler[~np.isnan(handler)]
        ended = at + took
        good = kind == SUCCESS
        self._committed[cells[good]] = True
        ready = self._ready[cells[good] // self._all.size]
        self._took[cells[good]] = ended[good] - ready
        last = number == self._candidate.deliveries
        over = ~good & (np.isin(kind, [*self._all.model.rejects]) | last)
        self._dead[cells[over]] = True
        left = ~(good | over)
        cells = cells[left]
        at = self._next(ended[left], kind[left], cells, number)
        if self._candidate.deliveries is None:
            followed = at <= self._until
            at, cells = at[followed], cells[followed]
        return at, cells

    def _ends(self, at: Floats, cells: Ints, number: int) -> tuple[Ints, Floats, Floats]:
        """How deliveries that begin at these times end, how long they take, and their handlers."""
        if number > 1 or self._blind:
            kind = self._kinds(at, cells, number)
            took = self._all.lasting(kind, cells % self._all.size)
            return kind, took[:, 0], took[:, 1]
        rows, model = cells // self._all.size, self._all.model
        kinds = np.array([model.number(one.kind) for one in self._firsts])
        took = np.array([(one.ended - one.begun, one.handler) for one in self._firsts], float)
        return kinds[rows], took[rows, 0], took[rows, 1]

    def _next(self, ended: Floats, kind: Ints, cells: Ints, number: int) -> Floats:
        expired = np.isin(kind, [*self._all.model.expires])
        at_once = expired & ~self._expired[cells]
        self._expired[cells] |= expired
        wait = self._candidate.waits(number, len(cells), self._all.rng)
        late = self._all.late(cells % self._all.size)
        return ended + np.where(at_once, 0.0, wait) + late

    def _draw_sources(self) -> None:
        """Whether messages are permanent or early, kind by kind, by what is seen of them."""
        for number, kind in enumerate(self._all.draws.kinds):
            if not (kind.permanent.any() or kind.early.any()):
                continue
            seen = self._seen(number, kind)
            chance, permanent, early = kind.sources(seen)
            drawn = self._all.rng.random(self._shape) * (chance + permanent + early)
            self._permanent[number] = ((chance <= drawn) & (drawn < chance + permanent)).ravel()
            low, high = kind.early_at(seen.since), kind.early_at(seen.until)
            lasts = kind.early_for(low + (high - low) * self._all.rng.random(self._shape))
            is_early = drawn >= chance + permanent
            until = np.where(is_early & (early > 0), self._start + lasts, -np.inf)
            self._early[number] = until.ravel()

    def _seen(self, number: int, kind: Kind) -> Seen:
        outside = [one.outside for one in kind.outages]
        seen = [(0.0, 0.0, 0.0, np.inf)] * len(self._cases)
        if not self._blind:
            seen = [self._seen_of(case, number, outside) for case in self._cases]
        return Seen(*map(_column, zip(*seen, strict=True)))

    def _seen_of(
        self, case: Case, number: int, outside: Sequence[tuple[float, float]]
    ) -> tuple[float, float, float, float]:
        failed = succeeded = 0
        since, until = 0.0, np.inf
        model, start = self._all.model, case.attempts[0].begun
        for one in case.attempts:
            which, elapsed = model.number(one.kind), float(one.begun - start)
            out = any(low < one.begun < high for low, high in outside)
            if out or which not in (number, SUCCESS):
                continue
            if which == SUCCESS:
                succeeded, until = succeeded + 1, min(until, elapsed)
            else:
                failed, since = failed + 1, max(since, elapsed)
        return failed, succeeded, since, until

    def _kinds(self, at: Floats, cells: Ints, attempt: int) -> Ints:
        """How deliveries that begin at these times end."""
        which, rng = cells % self._all.size, self._all.rng
        if self._all.rates:
            rate = self._all.rates[min(attempt, len(self._all.rates)) - 1]
            return np.where(rng.random(len(cells)) < rate, 0, SUCCESS)
        kinds = range(len(self._all.model.kinds))
        found = np.full(len(cells), SUCCESS)
        rates = [self._all.draws.rates(number, at, which) for number in kinds]
        odds = [np.where(rate >= 1, np.inf, rate / np.maximum(1 - rate, 1e-12)) for rate in rates]
        level = rng.random(len(cells)) * (1 + sum(odds))
        below = np.ones(len(cells))
        for number, share in enumerate(odds):
            surely = np.isinf(share)
            if number in self._permanent:
                surely |= self._permanent[number][cells] | (at < self._early[number][cells])
            hit = (below <= level) & (level < below + share)
            found = np.where((found == SUCCESS) & (hit | surely), number, found)
            below = below + share
        return found


def _resampled(seen: Floats, size: int, rng: np.random.Generator) -> Floats:
    """What each simulation draws from: what was seen is a sample, too."""
    seen = seen if len(seen) else np.zeros((1, *seen.shape[1:]))
    return rng.choice(seen, (size, len(seen)))


def _one_of_each(samples: Floats, which: Ints, rng: np.random.Generator) -> Floats:
    drawn: Floats = samples[which, rng.integers(0, samples.shape[1], len(which))]
    return drawn


def _column(values: Iterable[float | None]) -> Floats:
    return np.array([[value] for value in values], float)


def observed(cases: Sequence[Case]) -> Played:
    """What became of messages before they were ever redriven, as the only simulation."""
    own = [case.attempts[: case.before] for case in cases]
    known = [[one.handler for one in of_one if one.handler is not None] for of_one in own]
    counts = np.array([[len(of_one)] for of_one in own])
    committed = np.array([[case.outcome == COMMITTED] for case in cases])
    ended = _column(of_one[-1].ended for of_one in own)
    begun = []
    for number in range(max(map(len, own))):
        at = [float(of_one[number].begun) for of_one in own if number < len(of_one)]
        begun.append((np.array(at), np.zeros(len(at), np.int64)))
    return Played(
        begun,
        committed,
        np.array([[case.outcome == DEAD] for case in cases]),
        counts,
        _column(sum(handlers) if handlers else None for handlers in known),
        np.where(committed, ended - _column(case.ready for case in cases), np.nan),
        drawn=0,
    )


def batched(cases: Sequence[Case], size: int) -> Iterator[Sequence[Case]]:
    """Some of them at a time."""
    return (cases[start : start + size] for start in range(0, len(cases), size))
