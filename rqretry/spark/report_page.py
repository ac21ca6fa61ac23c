"""The page of a report: tables and plots in one HTML file that needs nothing from outside."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

_MOST_ROWS = 200
_MOST_BARS = 24
_LABEL = 120
_WHOLE_FROM = 1000
"""Larger numbers need no fractions."""

Row = Mapping[str, Any]


class Bar(NamedTuple):
    """A bar of a plot.

    Attributes:
        label: What it is of.
        parts: CSS class and length of each part.
        value: What is written behind it.
    """

    label: str
    parts: Sequence[tuple[str, float]]
    value: str

    @property
    def total(self) -> float:
        """The length of the whole bar."""
        return sum(length for _, length in self.parts)


Plot = tuple[str, Sequence[Bar]]
"""Bars on one scale, and what they are of; "" if there is one plot only."""


def page(tables: Mapping[str, Sequence[Row]], source: str) -> str:
    """The whole page.

    Args:
        tables: The rows of each table of the report, by its name.
        source: Where the history is from, for people.
    """
    templates = Environment(
        loader=PackageLoader("rqretry.spark"),
        autoescape=True,  # error messages come from anywhere
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"cell": _cell, "shortened": _shortened}
    templates.tests["amount"] = lambda value: isinstance(value, int | float | datetime)
    return templates.get_template("report.html").render(
        tables=tables, plots=_PLOTS, source=source, most_rows=_MOST_ROWS, most_bars=_MOST_BARS
    )


def _slow(rows: Sequence[Row]) -> Iterator[Plot]:
    bars: list[Bar] = []
    for row in rows:
        whole, wasted = row["handler_seconds"], row["wasted_seconds"]
        if whole is None:  # of a simple consumer
            continue
        value = f"{wasted:,.1f} of {whole:,.1f} s wasted"
        bars.append(Bar(_name(row), [("good", whole - wasted), ("bad", wasted)], value))
    yield "", bars


def _attempts(rows: Sequence[Row]) -> Iterator[Plot]:
    """A plot for each group: one with few messages must not vanish beside one with many."""
    for name, of_group in groupby(rows, _name):
        bars: list[Bar] = []
        for row in of_group:
            good, every = row["succeeded"], row["deliveries"]
            parts = [("good", good), ("bad", every - good)]
            value = f"{good:,} of {every:,} ({good / every:.1%})"
            bars.append(Bar(f"attempt {row['attempt']}", parts, value))
        yield name, bars


def _times(rows: Sequence[Row]) -> Iterator[Plot]:
    for row in rows:
        bars = [
            Bar(part, [("plain", row[part])], f"{row[part]:,.3f} s")
            for part in ("p50", "p90", "p95", "p99", "longest")
        ]
        yield f"{_name(row)}: {row['measure']}", bars


def _dead(rows: Sequence[Row]) -> Iterator[Plot]:
    bars: list[Bar] = []
    for row in rows:
        error = ": ".join(text for text in (row["error_type"], row["example"]) if text)
        label = f"{row['group']}: {error or 'no error'}"
        bars.append(Bar(label, [("bad", row["died"])], f"{row['died']:,}"))
    yield "", bars


def _losses(_rows: Sequence[Row]) -> Iterator[Plot]:
    yield from ()


def _name(row: Row) -> str:
    return f"{row['topic']} / {row['group']}"


_PLOTS = {
    "groups": _slow,
    "attempts": _attempts,
    "times": _times,
    "dead": _dead,
    "losses": _losses,
    "changes": _losses,
}
"""The plots of each table's rows."""


def _shortened(label: str) -> str:
    return label if len(label) <= _LABEL else f"{label[:_LABEL]}\u2026"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < _WHOLE_FROM else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S %Z").rstrip()
    return str(value)
