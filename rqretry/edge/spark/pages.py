"""The page of a report: tables and plots in one HTML file that needs nothing from outside.

It is built as a tree of elements, which escapes every text by itself: error messages come from
anywhere.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { border-bottom: 1px solid #8885; padding: .25rem .7rem; text-align: left; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
svg { max-width: 100%; height: auto; } svg text { fill: currentColor; font-size: 12px; }
.good { fill: #3a8f6a; } .bad { fill: #c8663c; } .plain { fill: #5b7fb5; }
.legend span { margin-right: 1rem; } p { opacity: .85; }
"""
_MOST_ROWS = 200
_MOST_BARS = 24
_BAR, _GAP, _LEFT, _WIDTH = 18, 6, 300, 460
_LABEL = 44

Row = Mapping[str, Any]
Bar = tuple[str, Sequence[tuple[str, float]], str]
"""A label, the parts of the bar (class and value), and what is written behind it."""

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


def page(tables: Mapping[str, Sequence[Row]], source: str) -> str:
    """The whole page.

    Args:
        tables: The rows of each table of the report, by its name.
        source: Where the history is from, in words.
    """
    html = Element("html", lang="en")
    head, body = SubElement(html, "head"), SubElement(html, "body")
    SubElement(head, "meta", charset="utf-8")
    SubElement(head, "meta", name="viewport", content="width=device-width")
    _text(head, "title", "rqretry report")
    _text(head, "style", _STYLE)
    _text(body, "h1", "Deliveries")
    _text(body, "p", f"From {source}.")
    plots = {"groups": _slow, "attempts": _attempts, "times": _times, "dead": _dead}
    for name, (title, words) in _SECTIONS.items():
        rows = tables[name]
        _text(body, "h2", title)
        _text(body, "p", words if rows else "Nothing.")
        if rows:
            _draw(body, title, plots[name](rows))
            _table(body, rows)
    return "<!doctype html>\n" + tostring(html, encoding="unicode", method="html")


def _slow(rows: Sequence[Row]) -> Iterable[Bar]:
    for row in rows:
        useful = row["handler_seconds"] - row["wasted_seconds"]
        parts = [("good", useful), ("bad", row["wasted_seconds"])]
        yield (
            _name(row),
            parts,
            f"{row['wasted_seconds']:,.1f} of {sum(p for _, p in parts):,.1f} s",
        )


def _attempts(rows: Sequence[Row]) -> Iterable[Bar]:
    for row in rows:
        parts = [("good", row["succeeded"]), ("bad", row["deliveries"] - row["succeeded"])]
        label = f"{_name(row)} attempt {row['attempt']}"
        yield label, parts, f"{row['succeeded']:,} of {row['deliveries']:,}"


def _times(rows: Sequence[Row]) -> Iterable[Bar]:
    for row in rows:
        if row["measure"] == "to success":
            for part in ("p50", "p90", "p99"):
                label = f"{_name(row)} {part} to success"
                yield label, [("plain", row[part])], f"{row[part]:,.3f} s"


def _dead(rows: Sequence[Row]) -> Iterable[Bar]:
    for row in rows:
        label = f"{row['group']}: {row['error_type'] or row['example'] or 'no error'}"
        yield label, [("bad", row["died"])], f"{row['died']:,}"


def _name(row: Row) -> str:
    return f"{row['topic']} / {row['group']}"


def _draw(parent: Element, title: str, bars: Iterable[Bar]) -> None:
    """Bars that lie, one below the other."""
    shown = list(bars)[:_MOST_BARS]
    longest = max((sum(value for _, value in parts) for _, parts, _ in shown), default=0)
    height, width = len(shown) * (_BAR + _GAP) + _GAP, _LEFT + _WIDTH + 180
    svg = SubElement(parent, "svg", viewBox=f"0 0 {width} {height}", width=str(width), role="img")
    svg.set("aria-label", title)
    for place, (label, parts, words) in enumerate(shown):
        top, left = _GAP + place * (_BAR + _GAP), float(_LEFT)
        cut = label if len(label) <= _LABEL else f"{label[: _LABEL - 1]}\u2026"
        name = _svg_text(svg, _LEFT - 8, top, cut)
        name.set("text-anchor", "end")
        for kind, value in parts:
            length = _WIDTH * value / longest if longest else 0.0
            box = {"x": f"{left:.1f}", "y": str(top), "width": f"{length:.1f}"}
            SubElement(svg, "rect", {**box, "height": str(_BAR), "class": kind})
            left += length
        _svg_text(svg, left + 6, top, words)


def _svg_text(svg: Element, left: float, top: float, words: str) -> Element:
    element = _text(svg, "text", words)
    element.set("x", f"{left:.1f}")
    element.set("y", str(top + _BAR - 5))
    return element


def _table(parent: Element, rows: Sequence[Row]) -> None:
    table = SubElement(parent, "table")
    top = SubElement(SubElement(table, "thead"), "tr")
    for name in rows[0]:
        _text(top, "th", name.replace("_", " "))
    inside = SubElement(table, "tbody")
    for row in rows[:_MOST_ROWS]:
        line = SubElement(inside, "tr")
        for value in row.values():
            cell = _text(line, "td", _cell(value))
            if isinstance(value, int | float):
                cell.set("class", "number")
    if len(rows) > _MOST_ROWS:
        _text(parent, "p", f"{_MOST_ROWS} of {len(rows)} rows; the Parquet file has them all.")


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.3f}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds")
    return str(value)


def _text(parent: Element, tag: str, words: str) -> Element:
    element = SubElement(parent, tag)
    element.text = words
    return element
