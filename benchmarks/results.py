"""Files of results: writing, reading, and comparing two of them."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.machine import about

Results = dict[str, dict[str, Any]]


def write(path: str, results: Mapping[str, Mapping[str, Any]], **more: Any) -> None:
    """Write results with what they were measured with."""
    whole = {"about": about(), **more, "scenarios": results}
    Path(path).write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


def read(path: str) -> Results:
    """Read such a file, or what `run --json` printed."""
    whole = json.loads(Path(path).read_text(encoding="utf-8"))
    found: Results = whole.get("scenarios", whole)
    return found


def comparison(before: Results, after: Results) -> Iterator[str]:
    """Lines for the scenarios that both have: both figures, and the second by the first."""
    for scenario in before:
        if scenario not in after:
            continue
        yield scenario
        for name, old in before[scenario].items():
            new = after[scenario].get(name)
            if isinstance(old, bool) or not isinstance(old, int | float) or name == "runs":
                continue
            if isinstance(new, int | float) and old:
                yield f"  {name:24} {old:14,.2f} {new:14,.2f}   x {new / old:.2f}"
