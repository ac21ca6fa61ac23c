"""Worlds whose failures are known, to see how often the intervals of simulate hold the truth.

A world has messages and up to three sources of failures: outages, permanent messages, and chance.
It is played under one policy, which makes the archive, and under another one, which makes the truth
that a simulation of the archive is to hold. `python -m benchmarks.retry_worlds --worlds 50`.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from rqretry.core.retry_policy import CompiledPolicy
from rqretry.spark.back_test import Coverage
from rqretry.spark.forecast import Forecast, Model, observed
from rqretry.spark.retry_model import COMMITTED, DEAD, Attempt, Candidate, Case
from rqretry.spark.tally import Tally

OUTAGE, PERMANENT, CHANCE = "outage", "permanent", "chance"
SOURCES = (OUTAGE, PERMANENT, CHANCE)
MIXES = tuple(mix for size in (1, 2, 3) for mix in combinations(SOURCES, size))
_SPAN = 4 * 3_600_000
_SECOND = 1000
_FEWEST, _MOST = 400, 1500


@dataclass(frozen=True)
class World:
    """A world.

    Attributes:
        ready: When each message was.
        permanent: Which messages always fail.
        outages: When every delivery fails.
        chance: How often any other delivery does.
        one_kind: All failures look the same.
        seed: Of what happens in it.
    """

    ready: Sequence[int]
    permanent: frozenset[int]
    outages: tuple[tuple[int, int], ...]
    chance: float
    one_kind: bool
    seed: int

    @classmethod
    def of(cls, mix: Sequence[str], seed: int) -> "World":
        """A world with these sources."""
        rng = np.random.default_rng(seed)
        count = int(rng.integers(_FEWEST, _MOST))
        ready = sorted(rng.integers(0, _SPAN, count).tolist())
        permanent: frozenset[int] = frozenset()
        if PERMANENT in mix:
            share = rng.uniform(0.02, 0.15)
            permanent = frozenset(np.flatnonzero(rng.random(count) < share).tolist())
        outages: list[tuple[int, int]] = []
        for _ in range(int(rng.integers(1, 4)) if OUTAGE in mix else 0):
            begun = int(rng.integers(0, _SPAN))
            outages.append((begun, begun + int(rng.integers(60, 1500)) * _SECOND))
        chance = float(rng.uniform(0.05, 0.5)) if CHANCE in mix else 0.0
        one_kind = bool(rng.random() < 1 / 2)
        return cls(ready, permanent, tuple(outages), chance, one_kind, seed)

    def play(self, policy: Candidate, turn: int) -> list[Case]:
        """What becomes of every message; the first delivery is the same in every turn."""
        rng = np.random.default_rng((self.seed, 1, turn))
        first = np.random.default_rng((self.seed, 0))
        return [self._case(n, policy, first, rng) for n in range(len(self.ready))]

    def _case(
        self, number: int, policy: Candidate, first: np.random.Generator, rng: np.random.Generator
    ) -> Case:
        due = self.ready[number]
        attempts: list[Attempt] = []
        while True:
            draw = rng if attempts else first
            late, took, chance = int(draw.integers(0, 20)), int(draw.integers(1, 80)), draw.random()
            at = due + late
            kind = self._failure(number, at, chance)
            how = "fail" if kind else "succeed"
            late = late if attempts else 0
            attempts.append(Attempt(at, at + took, how, late, kind=kind, handler=float(took)))
            if not kind or len(attempts) == policy.deliveries:
                outcome = DEAD if kind else COMMITTED
                return Case(self.ready[number], tuple(attempts), len(attempts), outcome)
            due = at + took + policy.policy.delay_ms(len(attempts))

    def _failure(self, number: int, at: int, chance: float) -> str:
        if any(begun <= at < ended for begun, ended in self.outages):
            return "error" if self.one_kind else OUTAGE
        if number in self.permanent:
            return "error" if self.one_kind else PERMANENT
        return ("error" if self.one_kind else CHANCE) if chance < self.chance else ""


def ladder(*seconds: float) -> Candidate:
    """A policy with these waits."""
    waits = tuple(int(wait * _SECOND) for wait in seconds)
    return Candidate(f"ladder {seconds}", CompiledPolicy(waits), len(waits) + 1)


ARCHIVED = ladder(10, 30, 60, 120, 180)
TRIED = (ladder(30, 60, 300), ladder(5, 10, 20, 40, 80, 160, 320, 640), ladder(60, 60))


def run(worlds: int, simulations: int = 200) -> dict[str, Coverage]:
    """How often the intervals of the model, and of the naive one, held the truth."""
    model, naive = Coverage(), Coverage()
    for number in range(worlds):
        world = World.of(MIXES[number % len(MIXES)], number)
        cases, policy = world.play(ARCHIVED, 0), TRIED[number % len(TRIED)]
        truth = Tally(1, 60_000)
        truth.add(observed(world.play(policy, 1)))
        rng = np.random.default_rng((number, 2))
        for forecast, coverage in (
            (Forecast(Model.of(cases), simulations, rng), model),
            (Forecast.naive(cases, simulations, rng), naive),
        ):
            tally = Tally(simulations, 60_000)
            for played in forecast.play(cases, policy, 0):
                tally.add(played)
            coverage.add(tally, truth)
    return {"model": model, "naive": naive}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the coverage of both."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.retry_worlds", description=__doc__)
    parser.add_argument("--worlds", type=int, default=50)
    parser.add_argument("--simulations", type=int, default=200)
    options = parser.parse_args(arguments)
    for name, coverage in run(options.worlds, options.simulations).items():
        print(name, *_lines(coverage), sep="\n  ")
    return 0


def _lines(coverage: Coverage) -> Iterator[str]:
    for figure, share, count, width in coverage.rows():
        print_share = "-" if share is None else f"{share:.0%}"
        yield f"{figure:20} {print_share:>5} of {count}, width {width:.3f}"


if __name__ == "__main__":
    sys.exit(main())
