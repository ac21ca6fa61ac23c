"""Lines for an inline SVG: points in, coordinates out; the template draws them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 600, 120

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart: `lines` are (name, coordinates of a polyline), `top` is the value at the top."""

    title: str
    top: float
    seconds: int
    lines: tuple[tuple[str, str], ...]


def draw(title: str, series: Mapping[str, Points]) -> Chart:
    """Fit all series into one frame: oldest left, zero at the bottom."""
    points = [point for line in series.values() for point in line]
    if not points:
        return Chart(title, 0, 0, ())
    start, end = min(at for at, _ in points), max(at for at, _ in points)
    top = max(value for _, value in points)
    across, up = WIDTH / ((end - start) or 1), HEIGHT / (top or 1)
    lines = tuple(
        (
            name,
            " ".join(f"{(at - start) * across:.1f},{HEIGHT - v * up:.1f}" for at, v in line),
        )
        for name, line in series.items()
    )
    return Chart(title, top, round(end - start), lines)
