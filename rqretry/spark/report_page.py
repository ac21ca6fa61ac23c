"""The page of a report: tables and plots in one HTML file that needs nothing from outside.

It is built as a tree of elements, which escapes every text by itself: error messages come from
anywhere.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring

_STYLE = """
:root { color-scheme: light dark; --line: #8885; --track: #8882; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem;
  overflow-wrap: break-word; }
h2 { margin-top: 2.5rem; } h3 { margin: 1.5rem 0 .5rem; font-size: 1rem; }
.words, .note { opacity: .8; }
.bars { display: grid; gap: .3rem .8rem; align-items: center; margin: 1rem 0; max-width: 60rem;
  grid-template-columns: fit-content(22rem) minmax(8rem, 1fr) fit-content(18rem); }
.bars > * { overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
.bars svg { width: 100%; height: 1.1rem; display: block; background: var(--track); }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; margin: 1rem 0 0; }
.legend svg { height: .7rem; width: .7rem; }
.good { fill: #3a8f6a; } .bad { fill: #c8663c; } .plain { fill: #5b7fb5; }
.wide { overflow-x: auto; margin: 1rem 0; } table { border-collapse: collapse; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .7rem .25rem 0; text-align: left;
  vertical-align: top; }
td.number, th.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
td.text { min-width: 6rem; max-width: 26rem; overflow-wrap: anywhere; }
@media (max-width: 40rem) {
  .bars { grid-template-columns: 1fr fit-content(10rem); }
  .bars .label { grid-column: 1 / -1; margin-top: .3rem; }
}
"""
_MOST_ROWS = 200
_MOST_BARS = 24
_HUNDRED = 100.0
_LABEL = 120
_WHOLE_FROM = 1000
"""Larger numbers need no fractions."""

Row = Mapping[str, Any]
Bar = tuple[str, Sequence[tuple[str, float]], str]
"""A label, the parts of the bar (class and value), and what is written behind it."""
Plot = tuple[str, Sequence[Bar]]
"""Bars on one scale, and what they are of; "" where there is one plot only."""

_SECTIONS = {
    "groups": (
        "Groups, the slowest first",
        (
            "Amplification is deliveries per message. Wasted is the time of handlers whose delivery"
            " did not succeed. Died counts messages that were ever dead, dead those that still are."
        ),
    ),
    "attempts": ("Success by attempt", "A redriven message begins at attempt 1 again."),
    "times": (
        "Times in seconds",
        (
            "Waiting is until the first delivery, to success until the message is committed, both"
            " from when it was published or, with a delay, delivered. Handler is one delivery."
        ),
    ),
    "dead": ("Dead letters by error", "Messages whose last error has the same fingerprint."),
}


_LEGENDS = {
    "groups": {"good": "time of handlers that succeeded", "bad": "wasted"},
    "attempts": {"good": "succeeded", "bad": "did not succeed"},
}


def page(tables: Mapping[str, Sequence[Row]], source: str) -> str:
    """The whole page.

    Args:
        tables: The rows of each table of the report, by its name.
        source: Where the history is from, in words.
    """
    html = Element("html", lang="en")
    head, body = SubElement(html, "head"), SubElement(html, "body")
    SubElement(head, "meta", charset="utf-8")
    SubElement(head, "meta", name="viewport", content="width=device-width, initial-scale=1")
    _text(head, "title", "rqretry report")
    _text(head, "style", _STYLE)
    _text(body, "h1", "Deliveries")
    _text(body, "p", f"From {source}.", "note")
    plots = {"groups": _slow, "attempts": _attempts, "times": _times, "dead": _dead}
    for name, (title, words) in _SECTIONS.items():
        rows = tables[name]
        _text(body, "h2", title)
        _text(body, "p", words if rows else "Nothing.", "note")
        if rows:
            _explain(body, _LEGENDS.get(name, {}))
            for of, bars in plots[name](rows):
                _draw(body, of, bars)
            _table(body, rows)
    return "<!doctype html>\n" + tostring(html, encoding="unicode", method="html")


def _slow(rows: Sequence[Row]) -> Iterator[Plot]:
    bars: list[Bar] = []
    for row in rows:
        whole, wasted = row["handler_seconds"], row["wasted_seconds"]
        words = f"{wasted:,.1f} of {whole:,.1f} s wasted"
        bars.append((_name(row), [("good", whole - wasted), ("bad", wasted)], words))
    yield "", bars


def _attempts(rows: Sequence[Row]) -> Iterator[Plot]:
    """A plot for each group: one with few messages must not vanish beside one with many."""
    for name, of_group in groupby(rows, _name):
        bars: list[Bar] = []
        for row in of_group:
            good, all_ = row["succeeded"], row["deliveries"]
            words = f"{good:,} of {all_:,} ({good / all_:.1%})"
            bars.append(
                (f"attempt {row['attempt']}", [("good", good), ("bad", all_ - good)], words)
            )
        yield name, bars


def _times(rows: Sequence[Row]) -> Iterator[Plot]:
    for row in rows:
        bars: list[Bar] = [
            (part, [("plain", row[part])], f"{row[part]:,.3f} s")
            for part in ("p50", "p90", "p95", "p99", "longest")
        ]
        yield f"{_name(row)}: {row['measure']}", bars


def _dead(rows: Sequence[Row]) -> Iterator[Plot]:
    bars: list[Bar] = []
    for row in rows:
        said = ": ".join(text for text in (row["error_type"], row["example"]) if text)
        bars.append(
            (f"{row['group']}: {said or 'no error'}", [("bad", row["died"])], f"{row['died']:,}")
        )
    yield "", bars


def _name(row: Row) -> str:
    return f"{row['topic']} / {row['group']}"


def _explain(parent: Element, legend: Mapping[str, str]) -> None:
    if not legend:
        return
    line = SubElement(parent, "div", {"class": "legend"})
    for kind, words in legend.items():
        item = SubElement(line, "span")
        box = SubElement(item, "svg", {"aria-hidden": "true"})
        SubElement(box, "rect", {"class": kind, "width": "100%", "height": "100%"})
        box.tail = f" {words}"


def _draw(parent: Element, of: str, bars: Sequence[Bar]) -> None:
    """Bars that lie, one below the other; widths are parts of the room that there is."""
    if of:
        _text(parent, "h3", of)
    shown = bars[:_MOST_BARS]
    longest = max((sum(value for _, value in parts) for _, parts, _ in shown), default=0)
    plot = SubElement(parent, "div", {"class": "bars"})
    for label, parts, words in shown:
        _text(plot, "span", label if len(label) <= _LABEL else f"{label[:_LABEL]}\u2026", "label")
        svg = SubElement(plot, "svg", role="img")
        svg.set("aria-label", words)
        left = 0.0
        for kind, value in parts:
            length = _HUNDRED * value / longest if longest else 0.0
            box = {"x": f"{left:.2f}%", "width": f"{length:.2f}%", "height": "100%"}
            SubElement(svg, "rect", {**box, "class": kind})
            left += length
        _text(plot, "span", words, "words")
    if len(bars) > len(shown):
        _text(parent, "p", f"{len(shown)} of {len(bars)} are drawn; the table has more.", "note")


def _table(parent: Element, rows: Sequence[Row]) -> None:
    table = SubElement(SubElement(parent, "div", {"class": "wide"}), "table")
    top = SubElement(SubElement(table, "thead"), "tr")
    for name, value in rows[0].items():
        _text(top, "th", name.replace("_", " "), _kind(value))
    inside = SubElement(table, "tbody")
    for row in rows[:_MOST_ROWS]:
        line = SubElement(inside, "tr")
        for value in row.values():
            _text(line, "td", _cell(value), _kind(value))
    if len(rows) > _MOST_ROWS:
        words = f"{_MOST_ROWS} of {len(rows)} rows; the Parquet file has them all."
        _text(parent, "p", words, "note")


def _kind(value: Any) -> str:
    return "number" if isinstance(value, int | float | datetime) else "text"


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


def _text(parent: Element, tag: str, words: str, kind: str = "") -> Element:
    element = SubElement(parent, tag, {"class": kind} if kind else {})
    element.text = words
    return element
