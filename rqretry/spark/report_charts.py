"""The charts of a report, drawn by matplotlib: SVG that stands in the page and fetches nothing."""

import html
import io
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

_COLOURS = {"good": "#3a8f6a", "bad": "#c8663c", "plain": "#5b7fb5"}
_INK = "#010203"
"""Stands for the colour of the page's text, which is another one in the dark."""
_STYLE: Any = {
    "svg.fonttype": "none",  # text that can be selected, in the font of the page
    "svg.hashsalt": "rqretry",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 9,
    **dict.fromkeys(("text.color", "xtick.color", "ytick.color", "axes.edgecolor"), _INK),
}
_NOTHING = dict.fromkeys(("Creator", "Date", "Format", "Type"))
_LABEL = 48
_WIDE, _BAR, _AXIS = 9.0, 0.28, 0.5
_ROOM = 1.35
"""How much longer than the longest bar a chart is: the value stands behind it."""
_MOST_HOURS = 8
"""So many labels fit below the columns."""


class Bar(NamedTuple):
    """A bar of a chart.

    Attributes:
        label: What it is of.
        parts: Kind of colour and length of each part.
        value: What is written behind it.
        link: What it leads to; "" for nothing.
    """

    label: str
    parts: Sequence[tuple[str, float]]
    value: str
    link: str = ""

    @property
    def total(self) -> float:
        """The length of the whole bar."""
        return sum(length for _, length in self.parts)


def bars(title: str, drawn: Sequence[Bar]) -> Markup:
    """Horizontal bars, one below the other."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDE, _AXIS + _BAR * len(drawn)), layout="constrained")
        axes = figure.subplots()
        axes.set_yticks(range(len(drawn)), [_shortened(one.label) for one in drawn])
        axes.invert_yaxis()
        axes.set_xlim(0, _ROOM * max(one.total for one in drawn) or 1)
        axes.set_xticks([])
        for place, one in enumerate(drawn):
            begun = 0.0
            for colour, length in one.parts:
                (patch,) = axes.barh(place, length, left=begun, color=_COLOURS[colour])
                patch.set_url(one.link or None)
                begun += length
            axes.text(begun, place, f" {one.value}", va="center")
        for text, one in zip(axes.get_yticklabels(), drawn, strict=True):
            text.set_url(one.link or None)
        return _markup(title, figure, axes)


def columns(title: str, drawn: Sequence[Bar]) -> Markup:
    """Vertical bars, one beside the other."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDE, 2.4), layout="constrained")
        axes = figure.subplots()
        patches = axes.bar(
            range(len(drawn)), [one.total for one in drawn], color=_COLOURS[drawn[0].parts[0][0]]
        )
        for patch, one in zip(patches, drawn, strict=True):
            patch.set_url(one.link or None)
        shown = range(0, len(drawn), -(-len(drawn) // _MOST_HOURS))
        axes.set_xticks(shown, [drawn[place].label for place in shown])
        return _markup(title, figure, axes)


def _markup(title: str, figure: Figure, axes: Axes) -> Markup:
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    content = io.StringIO()
    figure.savefig(content, format="svg", transparent=True, metadata=_NOTHING)
    drawn = content.getvalue()
    drawn = drawn[drawn.index("<svg") :].replace("xlink:href", "href").replace(_INK, "currentColor")
    drawn = re.sub(r' xmlns(:xlink)?="[^"]*"', "", drawn)
    named = f'<svg class="chart" role="group" aria-label="{html.escape(title)}"'
    return Markup(drawn.replace("<svg", named, 1))  # noqa: S704 - matplotlib escapes the texts in it


def _shortened(label: str) -> str:
    label = " ".join(label.split())
    return label if len(label) <= _LABEL else f"{label[:_LABEL]}\u2026"
