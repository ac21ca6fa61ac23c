"""The text format of Prometheus (version 0.0.4)."""

import platform
from collections.abc import Iterable, Mapping, Sequence

from rqretry.version import __version__

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = Mapping[str, str]
Sample = tuple[Labels, float]
Family = tuple[str, str, str, Iterable[Sample]]
"""Name, type, help and samples."""
Histogram = tuple[Labels, Sequence[float], float]
"""Labels, counts per bucket with one more for the rest, and the sum."""


def build_info() -> Family:
    """Which version this is."""
    labels = {"version": __version__, "python": platform.python_version()}
    return "rqretry_build_info", "gauge", "1; which version runs here.", [(labels, 1.0)]


def expose(families: Iterable[Family], common: Labels | None = None) -> str:
    """Families that have samples, each with its help and type; `common` labels come first."""
    lines: list[str] = []
    for name, type_, text, samples in families:
        rows = [_line(name, {**(common or {}), **labels}, value) for labels, value in samples]
        if rows:
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {type_}", *rows]
    return "\n".join(lines) + "\n"


def expose_histogram(
    name: str, text: str, bounds: Sequence[float], rows: Iterable[Histogram]
) -> str:
    """One histogram; "" without rows."""
    lines: list[str] = []
    for labels, counts, total in rows:
        below = 0.0
        for bound, count in zip([*map(str, bounds), "+Inf"], counts, strict=True):
            below += count
            lines.append(_line(f"{name}_bucket", {**labels, "le": bound}, below))
        lines.append(_line(f"{name}_sum", labels, total))
        lines.append(_line(f"{name}_count", labels, below))
    if not lines:
        return ""
    return "\n".join([f"# HELP {name} {text}", f"# TYPE {name} histogram", *lines]) + "\n"


def _line(name: str, labels: Labels, value: float) -> str:
    pairs = ",".join(f'{label}="{_escape(text)}"' for label, text in labels.items())
    return f"{name}{{{pairs}}} {value:.15g}" if pairs else f"{name} {value:.15g}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
