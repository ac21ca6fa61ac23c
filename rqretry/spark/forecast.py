"""What another retry policy would do with one message, many times over.

The first delivery is the same under every policy, so it ends as it did. How each later one ends is
drawn from the model of failures (failure_model.py), given what was seen of the message.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rqretry.spark.failure_draws import Draws, posterior
from rqretry.spark.failure_model import SUCCESS, Flags, Floats, Kind, Seen, Trials, fit
from rqretry.spark.retry_model import COMMITTED, DEAD, Candidate, Case

MOST_ATTEMPTS = 10_000
"""A message that is tried more often is not followed further."""
_KEPT = 1000
_DRAWS = 200
_MOST_KINDS = 30
_OTHERS = "others"

Ints = npt.NDArray[np.int64]


class Played(NamedTuple):
    """What became of a message, in each simulation.

    Attributes:
        begun: When the deliveries began, and in which simulations there were such.
        committed, dead: In which simulations it was; if neither, it was unfinished.
        deliveries: How many.
        busy: How long handlers ran; not a number if that is not known.
        took: From ready to committed; not a number if it was not, or that is not known.
        drawn: Whether anything was.
    """

    begun: Sequence[tuple[Floats, Flags]]
    committed: Flags
    dead: Flags
    deliveries: Ints
    busy: Floats
    took: Floats
    drawn: bool


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

    def late(self) -> Floats:
        """How long after they are due deliveries begin, in each simulation."""
        return _one_of_each(self._late, np.arange(self.size), self.rng)

    def lasting(self, kind: Ints) -> Floats:
        """How long deliveries that end so take, and their handlers, in each simulation."""
        took = np.zeros((self.size, 2))
        for number in np.unique(kind).tolist():
            mine = np.flatnonzero(kind == number)
            took[mine] = _one_of_each(self._took[number], mine, self.rng)
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

    def play(self, case: Case, candidate: Candidate, until: int, *, blind: bool = False) -> Played:
        """What would have become of a message.

        Args:
            case: What is known of it.
            candidate: The policy.
            until: The end of the history; where deliveries have no limit, it is followed so far.
            blind: Whether the message's own deliveries are unknown, the first one, too.
        """
        return _Run(self, case, candidate, until, blind=blind).played()


class _Run:
    """One message under one policy, in all simulations."""

    def __init__(
        self, forecast: Forecast, case: Case, candidate: Candidate, until: int, *, blind: bool
    ) -> None:
        self._all, self._case, self._candidate = forecast, case, candidate
        self._until, self._blind = until, blind
        self._start = case.attempts[0].begun
        size = forecast.size
        self._permanent: dict[int, Flags] = {}
        self._early: dict[int, Floats] = {}
        self._deliveries = np.zeros(size, np.int64)
        self._busy, self._took = np.full(size, np.nan), np.full(size, np.nan)
        self._committed, self._dead = np.zeros(size, bool), np.zeros(size, bool)
        self._expired = np.zeros(size, bool)

    def played(self) -> Played:
        """Deliver until all simulations have ended."""
        first, size = self._case.attempts[0], self._all.size
        at, active, begun = np.full(size, float(self._start)), np.ones(size, bool), []
        sure = not self._blind
        if not (sure and first.how == "succeed"):
            self._draw_sources()
        for number in range(1, MOST_ATTEMPTS + 1):
            if not active.any():
                break
            begun.append((at, active))
            self._deliveries += active
            kind = self._first() if sure and number == 1 else self._kinds(at, number)
            took = self._all.lasting(kind)
            if sure and number == 1:
                took[:] = first.ended - first.begun, first.handler
            handled = active & ~np.isnan(took[:, 1])
            self._busy = np.where(handled, np.nan_to_num(self._busy) + took[:, 1], self._busy)
            ended = at + took[:, 0]
            good = active & (kind == SUCCESS)
            self._committed |= good
            if self._case.ready is not None:
                self._took = np.where(good, ended - self._case.ready, self._took)
            active = active & ~good
            last = number == self._candidate.deliveries
            over = active & (np.isin(kind, [*self._all.model.rejects]) | last)
            self._dead |= over
            active = active & ~over
            if not active.any():
                break
            at = self._next(ended, kind, number)
            if self._candidate.deliveries is None:
                active = active & (at <= self._until)
        drawn = not (sure and first.how == "succeed")
        return Played(
            begun, self._committed, self._dead, self._deliveries, self._busy, self._took, drawn
        )

    def _first(self) -> Ints:
        return np.full(self._all.size, self._all.model.number(self._case.attempts[0].kind))

    def _next(self, ended: Floats, kind: Ints, number: int) -> Floats:
        expired = np.isin(kind, [*self._all.model.expires])
        at_once = expired & ~self._expired
        self._expired |= expired
        wait = self._candidate.waits(number, self._all.size, self._all.rng)
        return ended + np.where(at_once, 0.0, wait) + self._all.late()

    def _draw_sources(self) -> None:
        """Whether the message is permanent or early, kind by kind, by what is seen of it."""
        for number, kind in enumerate(self._all.draws.kinds):
            if not (kind.permanent.any() or kind.early.any()):
                continue
            seen = _unseen() if self._blind else self._seen(number, kind)
            chance, permanent, early = kind.sources(seen)
            drawn = self._all.rng.random(self._all.size) * (chance + permanent + early)
            self._permanent[number] = (chance <= drawn) & (drawn < chance + permanent)
            low, high = kind.early_at(seen.since), kind.early_at(seen.until)
            lasts = kind.early_for(low + (high - low) * self._all.rng.random(self._all.size))
            is_early = drawn >= chance + permanent
            self._early[number] = np.where(is_early & (early > 0), self._start + lasts, -np.inf)

    def _seen(self, number: int, kind: Kind) -> Seen:
        failed = succeeded = 0
        since, until = 0.0, np.inf
        model, outside = self._all.model, [one.outside for one in kind.outages]
        for one in self._case.attempts:
            which, elapsed = model.number(one.kind), float(one.begun - self._start)
            out = any(low < one.begun < high for low, high in outside)
            if out or which not in (number, SUCCESS):
                continue
            if which == SUCCESS:
                succeeded, until = succeeded + 1, min(until, elapsed)
            else:
                failed, since = failed + 1, max(since, elapsed)
        return Seen(*(np.array([float(value)]) for value in (failed, succeeded, since, until)))

    def _kinds(self, at: Floats, attempt: int) -> Ints:
        """How deliveries that begin at these times end."""
        if self._all.rates:
            rate = self._all.rates[min(attempt, len(self._all.rates)) - 1]
            return np.where(self._all.rng.random(self._all.size) < rate, 0, SUCCESS)
        size, kinds = self._all.size, self._all.model.kinds
        found = np.full(size, SUCCESS)
        rates = [self._all.draws.rates(number, at) for number in range(len(kinds))]
        odds = [np.where(rate >= 1, np.inf, rate / np.maximum(1 - rate, 1e-12)) for rate in rates]
        level = self._all.rng.random(size) * (1 + sum(odds)) if odds else np.zeros(size)
        below = np.ones(size)
        for number, share in enumerate(odds):
            surely = np.isinf(share)
            for forced in (self._permanent.get(number), self._early_now(number, at)):
                surely = surely if forced is None else surely | forced
            hit = (below <= level) & (level < below + share)
            found = np.where((found == SUCCESS) & (hit | surely), number, found)
            below = below + share
        return found

    def _early_now(self, number: int, at: Floats) -> Flags | None:
        until = self._early.get(number)
        return None if until is None else at < until


def _resampled(seen: Floats, size: int, rng: np.random.Generator) -> Floats:
    """What each simulation draws from: what was seen is a sample, too."""
    seen = seen if len(seen) else np.zeros((1, *seen.shape[1:]))
    return rng.choice(seen, (size, len(seen)))


def _one_of_each(samples: Floats, rows: Ints, rng: np.random.Generator) -> Floats:
    drawn: Floats = samples[rows, rng.integers(0, samples.shape[1], len(rows))]
    return drawn


def observed(case: Case) -> Played:
    """What became of a message before it was ever redriven, as the only simulation."""
    own, yes = case.attempts[: case.before], np.ones(1, bool)
    committed, took = case.outcome == COMMITTED, np.nan
    if committed and case.ready is not None:
        took = own[-1].ended - case.ready
    return Played(
        [(np.array([float(one.begun)]), yes) for one in own],
        yes & committed,
        yes & (case.outcome == DEAD),
        np.array([len(own)]),
        np.array(
            [sum(known) if (known := [o.handler for o in own if o.handler is not None]) else np.nan]
        ),
        np.array([float(took)]),
        drawn=False,
    )


def _unseen() -> Seen:
    zero = np.zeros(1)
    return Seen(zero, zero, zero, np.full(1, np.inf))
