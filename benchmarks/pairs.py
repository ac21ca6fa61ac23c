"""Two trees in turns: each scenario in the one, then in the other, and the ratio of each pair.

A shared machine drifts by more than most changes are worth, so two runs an hour apart prove
nothing. The two runs of a pair stand next to each other, every second pair begins with the other
tree, and what counts is the median of the ratios.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Pairs(NamedTuple):
    """One figure of one scenario, pair by pair."""

    scenario: str
    figure: str
    before: Sequence[float]
    after: Sequence[float]

    @property
    def ratios(self) -> list[float]:
        """After by before, least first."""
        return sorted(new / old for old, new in zip(self.before, self.after, strict=True))

    def line(self) -> str:
        """For people: medians of both, the median ratio, the middle half and the whole spread."""
        ratios = self.ratios
        low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
        return (
            f"{self.scenario:14} {self.figure:10} before {statistics.median(self.before):>10,.1f}"
            f"  after {statistics.median(self.after):>10,.1f}"
            f"  ratio {statistics.median(ratios):.3f}  middle half {low:.3f} to {high:.3f}"
            f"  all {ratios[0]:.3f} to {ratios[-1]:.3f}  pairs {len(ratios)}"
        )


def run_pairs(before: Path, after: Path, names: Sequence[str], count: int) -> Iterator[Pairs]:
    """Measure each scenario `count` times in both trees, in turns."""
    for name in names:
        found: dict[Path, list[Mapping[str, Any]]] = {before: [], after: []}
        for turn in range(count):
            trees = (before, after) if turn % 2 == 0 else (after, before)
            for tree in trees:
                print(f"{name} ({turn + 1} of {count}) in {tree} ...", file=sys.stderr, flush=True)
                found[tree].append(measured(tree, name))
        for figure in ("rate", "p50_ms", "redis_us", "worker_us"):
            old = [run[figure] for run in found[before] if run.get(figure)]
            new = [run[figure] for run in found[after] if run.get(figure)]
            if len(old) == len(new) == count:
                yield Pairs(name, figure, old, new)


def measured(tree: Path, name: str) -> Mapping[str, Any]:
    """One run of a scenario with the code of a tree, in a process of its own.

    Raises:
        RuntimeError: It failed, or lost a message.
    """
    command = (
        "env",
        f"PYTHONPATH={tree}",
        sys.executable,
        "-m",
        "benchmarks",
        "run",
        name,
        "--json",
    )
    done = subprocess.run(command, cwd=tree, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name} failed in {tree}: {done.stderr.decode()[-2000:]}")
    figures: Mapping[str, Any] = json.loads(done.stdout)[name]
    if not figures["checked"]:
        raise RuntimeError(f"{name} in {tree}: not every message was handled as it had to be")
    return figures
