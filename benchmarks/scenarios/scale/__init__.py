"""What grows with what exists: places, topics, dead letters, message groups; each with its bar.

A part is a file of this package with one function, listed in `PARTS`. It is given the largest size
to measure at (partitions, topics, messages: whatever it is about; None: as large as its bars say),
and yields what it measured. A part over some seconds reports to stderr what it does.
"""

import sys
from collections.abc import Callable, Iterable

from benchmarks.figures import Figures
from benchmarks.scenarios.scale import calls, dead_letters, places, topics
from benchmarks.scenarios.scale.measure import Measure

Part = Callable[[int | None], Iterable[Measure]]

PARTS: dict[str, Part] = {
    "places": places.places,
    "topics": topics.topics,
    "dead_letters": dead_letters.dead_letters,
    "calls": calls.calls,
}


def scale(messages: int | None) -> Figures:
    """All parts; `rate` is the number of bars that are met."""
    found = []
    for measure in (measure for part in PARTS.values() for measure in part(messages)):
        found.append(measure)
        print(f"  {measure}", file=sys.stderr, flush=True)
    return Figures(
        rate=sum(measure.met for measure in found),
        checked=True,
        more={measure.name: measure.value for measure in found},
        bars={measure.name: measure.bar for measure in found},
    )
