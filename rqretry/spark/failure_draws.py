"""How certain the model of failures is: its parameters, drawn from what is known of them.

A simulation that took the estimates for the truth would be too sure. So each has a model of its
own, drawn in proportion to how well it explains the archive (Gibbs sampling: the source of each
message by the parameters, the parameters by the sources).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rqretry.spark.failure_model import Edge, Flags, Floats, Kind, Outage, Seen, early_grid

_BURN = 30
_PRIOR = 0.5
_TINY = 1e-300


@dataclass(frozen=True, slots=True)
class Draws:
    """The model as it may be in each of many simulations.

    Attributes:
        kinds: Of each kind the parameters in each simulation.
        outages: Of each kind: for each outage, beginning, end and rate in each simulation.
    """

    kinds: tuple[Kind, ...]
    outages: tuple[tuple[tuple[Floats, Floats, Floats], ...], ...]

    @classmethod
    def of(cls, kinds: Sequence[Kind], size: int, rng: np.random.Generator) -> "Draws":
        """So many of the draws that `posterior` made."""
        chosen = []
        for kind in kinds:
            rows = np.arange(size) % len(kind.chance)
            parameters = (kind.chance, kind.permanent, kind.early, kind.scale, kind.shape)
            chosen.append(Kind(kind.outages, *(one[rows] for one in parameters)))
        outages = tuple(
            tuple(_outage(outage, kind.chance, rng) for outage in kind.outages) for kind in chosen
        )
        return cls(tuple(chosen), outages)

    def rates(self, number: int, at: Floats, which: npt.NDArray[np.int64]) -> Floats:
        """How often deliveries fail by chance or an outage, at these times in these simulations."""
        rate: Floats = self.kinds[number].chance[which]
        for begun, ended, inside in self.outages[number]:
            out = (begun[which] <= at) & (at < ended[which])
            rate = np.where(out, np.maximum(rate, inside[which]), rate)
        return rate


def posterior(kind: Kind, seen: Seen, size: int, rng: np.random.Generator) -> Kind:
    """So many draws of the parameters of a kind, with the sources that it has."""
    open_ = (seen.failed > 0) | (seen.succeeded == 0)  # what never failed, is chance
    surely = float(seen.succeeded[~open_].sum())
    count = int((~open_).sum())
    seen = seen.at_places(open_)
    grid, spans = early_grid(seen) if kind.early else (np.ones((1, 2)), np.zeros((1, 0)))
    drawn = []
    for step in range(_BURN + size):
        of_chance, permanent, early = _sources(kind, seen, rng)
        chance = rng.beta(
            seen.failed[of_chance].sum() + _PRIOR, surely + seen.succeeded[of_chance].sum() + _PRIOR
        )
        counts = [count + of_chance.sum(), permanent.sum(), early.sum()]
        known = np.array([True, kind.permanent > 0, kind.early > 0])
        shares = np.zeros(3)
        shares[known] = rng.dirichlet(np.array(counts, float)[known] + _PRIOR)
        scale, shape = kind.scale, kind.shape
        if kind.early:
            fits = spans[:, early].sum(axis=1)
            weights = np.exp(fits - fits.max())
            scale, shape = grid[rng.choice(len(grid), p=weights / weights.sum())]
        kind = Kind(kind.outages, chance, shares[1], shares[2], scale, shape)
        if step >= _BURN:
            drawn.append((chance, shares[1], shares[2], scale, shape))
    return Kind(kind.outages, *np.array(drawn, float).reshape(-1, 5).T)


def _sources(kind: Kind, seen: Seen, rng: np.random.Generator) -> tuple[Flags, Flags, Flags]:
    """A source for each message."""
    chance, permanent, early = kind.sources(seen)
    level = rng.random(len(chance)) * np.maximum(chance + permanent + early, _TINY)
    of_chance = level < chance
    is_permanent = ~of_chance & (level < chance + permanent)
    return of_chance, is_permanent, ~of_chance & ~is_permanent


def _outage(one: Outage, chance: Floats, rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
    begun = _edge(one.begin, chance, rng)
    if np.isfinite(one.end.at[0]):
        ended = _edge(one.end, chance, rng)
    else:  # it lasts as long again as not
        ended = begun + (one.inside[1] - begun) / (1 - rng.random(len(chance)))
    if one.succeeded == 0:
        return begun, ended, np.ones(len(chance))
    inside = rng.beta(one.failed + _PRIOR, one.succeeded + _PRIOR, len(chance))
    return begun, ended, inside


def _edge(edge: Edge, chance: Floats, rng: np.random.Generator) -> Floats:
    """Somewhere in a gap; every failure that is left outside must have been chance."""
    gaps = np.abs(np.diff(edge.at))
    lucky = np.cumsum(~edge.anyway[:-1]) - 1
    weights = gaps * chance[:, None] ** lucky
    level = rng.random(len(chance)) * weights.sum(axis=1)
    gap = np.minimum((np.cumsum(weights, axis=1) <= level[:, None]).sum(axis=1), len(gaps) - 1)
    low, high = edge.at[gap], edge.at[gap + 1]
    found: Floats = low + (high - low) * rng.random(len(chance))
    return found
