"""What a scenario reports, the same names for all, and medians of repetitions."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

NAMES = (
    "rate", "p50_ms", "p99_ms", "redis_us", "worker_us", "bytes_per_message", "floor_ratio",
    "checked",
)  # fmt: skip
"""What every scenario's JSON has; null where a figure makes no sense for it."""


@dataclass(slots=True)
class Figures:
    """One repetition of one scenario.

    Attributes:
        rate: Messages (or deliveries) per second.
        p50_ms, p99_ms: Of the latency or lateness that the scenario is about.
        redis_us: Server CPU per message.
        worker_us: CPU of the process that does the work, per message.
        bytes_per_message: Memory of the server per message that waits.
        floor_ratio: `rate` by that of the bare loop, in the same run; of a latency, the bare one's
            median by ours.
        checked: Every message id was handled as often as it had to be.
        redis_commands: Requests to the server per message.
        rss_mb: Memory of the process that does the work.
        more: What only this scenario has.
        bars: The most that figures in `more` may be, by their names.
    """

    rate: float
    checked: bool
    p50_ms: float | None = None
    p99_ms: float | None = None
    redis_us: float | None = None
    worker_us: float | None = None
    bytes_per_message: float | None = None
    floor_ratio: float | None = None
    redis_commands: float | None = None
    rss_mb: float | None = None
    more: dict[str, float] = field(default_factory=dict)
    bars: dict[str, float] = field(default_factory=dict)

    def flat(self) -> dict[str, Any]:
        """As JSON has it."""
        fields = asdict(self)
        del fields["bars"]
        more = fields.pop("more")
        return {**fields, **more}


def summary(runs: Sequence[Figures]) -> dict[str, Any]:
    """The median of each figure over repetitions; `spread` has the least and the most of each."""
    flats = [run.flat() for run in runs]
    medians: dict[str, Any] = {}
    spread: dict[str, list[float]] = {}
    for name in flats[0]:
        values = [flat[name] for flat in flats if flat.get(name) is not None]
        if name == "checked":
            medians[name] = all(values)
        elif not values:
            medians[name] = None
        else:
            medians[name] = round(statistics.median(values), 3)
            spread[name] = [round(min(values), 3), round(max(values), 3)]
    medians.pop("more", None)
    ordered = {name: medians.get(name) for name in NAMES}
    bars = {"bars": runs[0].bars} if runs[0].bars else {}
    return {**ordered, **medians, "runs": len(runs), "spread": spread, **bars}


def percentile(values: Sequence[float], percent: float) -> float:
    """A percentile of some values, by nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Results as lines for people: the figure, and its spread where it was repeated."""
    lines = []
    for scenario, figures in results.items():
        lines.append(scenario)
        for name, value in figures.items():
            if name in {"spread", "runs", "bars"} or value is None:
                continue
            lines.append(
                f"  {name:24} {_shown(value):>14}{_spread(figures, name)}{_bar(figures, name)}"
            )
    return "\n".join(lines)


def _shown(value: float | bool) -> str:  # noqa: FBT001 - either is a figure
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.2f}"  # noqa: PLR2004


def _spread(figures: Mapping[str, Any], name: str) -> str:
    low, high = figures["spread"].get(name, (None, None))
    if figures["runs"] < 2 or low is None:  # noqa: PLR2004
        return ""
    return f"   ({_shown(low)} to {_shown(high)})"


def _bar(figures: Mapping[str, Any], name: str) -> str:
    bar = figures.get("bars", {}).get(name)
    if bar is None:
        return ""
    return f"   at most {_shown(bar)}: {'met' if figures[name] <= bar else 'MISSED'}"
