"""Writes what messages cost into the package, for `rqretry plan`."""

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import rqretry
from benchmarks.machine import about

FILE = Path(rqretry.__file__).parent / "admin" / "costs.json"


def write_costs(runs: Sequence[Mapping[str, float]]) -> str:
    """Write of each cost the median, the least and the most of several runs; the text."""
    found = {name: [run[name] for run in runs] for name in runs[0]}
    kept = {
        name: [round(figure, 2) for figure in (statistics.median(all_), min(all_), max(all_))]
        for name, all_ in found.items()
    }
    text = json.dumps({"about": about(), "costs": kept}, indent=1) + "\n"
    FILE.write_text(text, encoding="utf-8")
    return text
