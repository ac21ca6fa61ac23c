"""The page of a report: tables and charts in one HTML file that needs nothing from outside."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from rqretry.spark.report_charts import Bar, bars, columns

_MOST_ROWS = 200
_MOST_BARS = 24
_MOST_COLUMNS = 24 * 7
_WHOLE_FROM = 1000
"""Larger numbers need no fractions."""

Row = Mapping[str, Any]


class Chart(NamedTuple):
    """A chart of some rows.

    Attributes:
        title: What it is of; "" if it is the only one of its table.
        svg: The drawing.
        left_out: How many bars there was no room for.
    """

    title: str
    svg: Markup
    left_out: int


def page(tables: Mapping[str, Sequence[Row]], source: str, dashboard: str | None = None) -> str:
    """The whole page.

    Args:
        tables: The rows of each table of the report, by its name.
        source: Where the history is from, for people.
        dashboard: The URL of a dashboard that has pages of messages.
    """
    templates = Environment(
        loader=PackageLoader("rqretry.spark"),
        autoescape=True,  # error messages come from anywhere
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"cell": _cell, "message": lambda id_: quote(id_, safe="")}
    templates.tests["amount"] = lambda value: isinstance(value, int | float | datetime)
    charts = {name: list(draw(tables[name])) for name, draw in _CHARTS.items() if tables.get(name)}
    return templates.get_template("report.html").render(
        tables=tables, charts=charts, source=source, dashboard=dashboard, most_rows=_MOST_ROWS
    )


def _chart(title: str, named: str, drawn: Sequence[Bar]) -> Chart:
    return Chart(title, bars(title or named, drawn[:_MOST_BARS]), len(drawn[_MOST_BARS:]))


def _dead(rows: Sequence[Row]) -> Iterator[Chart]:
    drawn = []
    for number, row in enumerate(rows, 1):
        label = f"{row['group']}: {_error(row)}"
        drawn.append(Bar(label, [("bad", row["died"])], f"{row['died']:,}", f"#dead-{number}"))
    yield _chart("", "messages that died, by error", drawn)


def _changes(rows: Sequence[Row]) -> Iterator[Chart]:
    drawn = []
    for number, row in enumerate(rows, 1):
        now, before = row["died"], row["died_before"]
        if row["fingerprint"] is not None and now > before:
            parts = [("plain", before), ("bad", now - before)]
            label, link = f"{row['group']}: {row['error_type']}", f"#changes-{number}"
            drawn.append(Bar(label, parts, f"{now:,} died, {before:,} before", link))
    if drawn:
        yield _chart("", "messages that died, and those before", drawn)


def _costs(rows: Sequence[Row]) -> Iterator[Chart]:
    drawn = []
    for number, row in enumerate(rows, 1):
        spent = row["retry_seconds"]
        value = f"{row['retries']:,} retries" + ("" if spent is None else f", {spent:,.1f} s")
        value += "" if row["cost"] is None else f", {row['cost']:,.2f}"
        drawn.append(Bar(_name(row), [("bad", row["retries"])], value, f"#costs-{number}"))
    yield _chart("", "retries", drawn)


def _hours(rows: Sequence[Row]) -> Iterator[Chart]:
    """Failures of each hour; a column leads to the group that had most of them."""
    failed: dict[datetime, int] = {}
    worst: dict[datetime, int] = {}
    for number, row in enumerate(rows, 1):
        failed[row["hour"]] = failed.get(row["hour"], 0) + row["failed"]
        worst.setdefault(row["hour"], number)
    drawn = [
        Bar(f"{hour:%d %b %H:00}", [("bad", failed[hour])], "", f"#hours-{worst[hour]}")
        for hour in sorted(failed)[-_MOST_COLUMNS:]
    ]
    yield Chart("", columns("deliveries that failed, by hour", drawn), len(failed) - len(drawn))


def _dependencies(rows: Sequence[Row]) -> Iterator[Chart]:
    drawn = []
    for number, row in enumerate(rows, 1):
        link = f"#dependencies-{number}"
        label = f"{row['group']}: {row['dependency']}"
        drawn.append(Bar(label, [("bad", row["failed"])], f"{row['failed']:,}", link))
    yield _chart("", "deliveries that failed, by what the error names", drawn)


def _times(rows: Sequence[Row]) -> Iterator[Chart]:
    for number, row in enumerate(rows, 1):
        drawn = [
            Bar(part, [("plain", row[part])], f"{row[part]:,.3f} s", f"#times-{number}")
            for part in ("p50", "p90", "p95", "p99", "longest")
        ]
        yield _chart(f"{_name(row)}: {row['measure']}", "", drawn)


def _groups(rows: Sequence[Row]) -> Iterator[Chart]:
    drawn = []
    for row in rows:
        whole, wasted = row["handler_seconds"], row["wasted_seconds"]
        if whole is None:  # of a simple consumer
            continue
        value = f"{wasted:,.1f} of {whole:,.1f} s wasted"
        drawn.append(Bar(_name(row), [("good", whole - wasted), ("bad", wasted)], value))
    if drawn:
        yield _chart("", "time of handlers", drawn)


def _attempts(rows: Sequence[Row]) -> Iterator[Chart]:
    """A chart for each group: one with few messages must not vanish beside one with many."""
    for name, of_group in groupby(rows, _name):
        drawn = []
        for row in of_group:
            good, every = row["succeeded"], row["deliveries"]
            parts = [("good", good), ("bad", every - good)]
            value = f"{good:,} of {every:,} ({good / every:.1%})"
            drawn.append(Bar(f"attempt {row['attempt']}", parts, value))
        yield _chart(name, "", drawn)


_CHARTS = {
    "dead": _dead,
    "changes": _changes,
    "costs": _costs,
    "hours": _hours,
    "dependencies": _dependencies,
    "times": _times,
    "groups": _groups,
    "attempts": _attempts,
}
"""The charts of each table's rows; of none, if there are no rows."""


def _name(row: Row) -> str:
    return f"{row['topic']} / {row['group']}"


def _error(row: Row) -> str:
    return ": ".join(text for text in (row["error_type"], row["example"]) if text) or "no error"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < _WHOLE_FROM else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S %Z").rstrip()
    return str(value)
