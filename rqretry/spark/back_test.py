"""How often intervals of a simulation hold the truth: with an archive's own policy, blindly."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from rqretry.core.retry_policy import CompiledPolicy
from rqretry.spark.failure_model import Floats
from rqretry.spark.forecast import Forecast, Model, observed
from rqretry.spark.retry_model import DEAD, Candidate, Case
from rqretry.spark.tally import Tally, ends

_FOLDS, _TESTED = 10, 5000
_WINDOW_MS = 60_000
_ALL, OBSERVED = "all", "observed"


@dataclass(slots=True)
class Coverage:
    """Intervals and what was true; an interval of one value, which is certain, does not count.

    Attributes:
        held: Of each figure, whether each interval held the truth.
        widths: How wide they were, as a share of the truth.
    """

    held: dict[str, list[bool]] = field(default_factory=dict)
    widths: dict[str, list[float]] = field(default_factory=dict)

    def add(self, tally: Tally, truth: Tally) -> None:
        """One more forecast."""
        actual = truth.figures()
        for name, values in tally.figures().items():
            true = float(actual[name][0])
            low, _, high = ends(values)
            if np.isnan(true) or low is None or high is None or low == high == true:
                continue
            self.held.setdefault(name, []).append(low <= true <= high)
            self.widths.setdefault(name, []).append((high - low) / max(abs(true), 1.0))

    def rows(self) -> list[tuple[str, float | None, int, float]]:
        """Of each figure and of all: the share that was held, of how many, and the mean width."""
        found = [(name, self.held[name], self.widths[name]) for name in self.held]
        held = [one for _, part, _ in found for one in part]
        widths = [one for *_, part in found for one in part]
        return [_row(*one) for one in [*found, (_ALL, held, widths)]]


def _row(name: str, held: list[bool], widths: list[float]) -> tuple[str, float | None, int, float]:
    share, width = (float(np.mean(held)), float(np.mean(widths))) if held else (None, 0.0)
    return name, share, len(held), width


@dataclass(frozen=True, slots=True)
class _AsObserved(Candidate):
    """The policy that a group had, as far as its waits show it."""

    waited: tuple[Floats, ...] = ()

    @classmethod
    def of(cls, cases: Sequence[Case]) -> "_AsObserved":
        """By the waits after the deliveries of each number, and by when messages died."""
        waited: dict[int, list[int]] = {}
        most = 0
        for case in cases:
            own = case.attempts[: case.before]
            for number, (one, following) in enumerate(pairwise(own), 1):
                waited.setdefault(number, []).append(
                    max(0, following.begun - following.late - one.ended)
                )
            if case.outcome == DEAD and not own[-1].rejected:
                most = max(most, len(own))
        waits = tuple(np.array(waited[number], float) for number in sorted(waited))
        return cls(OBSERVED, CompiledPolicy((0,)), most or None, waits)

    def waits(self, number: int, size: int, rng: np.random.Generator) -> Any:
        """As long as others waited."""
        seen = self.waited[min(number, len(self.waited)) - 1] if self.waited else np.zeros(1)
        return rng.choice(seen, size)


def back_test_of(groups: Mapping[Any, Sequence[Case]], size: int) -> list[dict[str, Any]]:
    """Forecast each tenth of the messages from the others, knowing only when they were ready.

    Returns:
        Of each figure and of all: the share of intervals that held what was observed, by the model
        and by the naive forecast, and how many there were.
    """
    model, naive = Coverage(), Coverage()
    for cases in groups.values():
        used = cases[:_TESTED]
        policy, until = _AsObserved.of(used), max(one.attempts[-1].ended for one in used)
        for fold in range(_FOLDS):
            mine = [case for n, case in enumerate(used) if n % _FOLDS == fold]
            others = [case for n, case in enumerate(used) if n % _FOLDS != fold]
            if not mine or not others:
                continue
            truth = Tally(1, _WINDOW_MS)
            truth.add(observed(mine))
            rng = np.random.default_rng(fold)
            for coverage, forecast in (
                (model, Forecast(Model.of(others), size, rng)),
                (naive, Forecast.naive(others, size, rng)),
            ):
                tally = Tally(size, _WINDOW_MS)
                for played in forecast.play(mine, policy, until, blind=True):
                    tally.add(played)
                coverage.add(tally, truth)
    shares = {name: share for name, share, *_ in naive.rows()}
    return [
        {"figure": name, "model": share, "naive": shares.get(name), "intervals": count}
        for name, share, count, _ in model.rows()
    ]
