"""Lines for an inline SVG: points in, coordinates out; the template draws them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 600, 120
SPARK = (100, 24)
MOST_POINTS = 300

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart: `lines` are (name, coordinates of a polyline), `top` is the value at the top."""

    title: str
    top: float
    seconds: int
    lines: tuple[tuple[str, str], ...]


def draw(
    title: str, series: Mapping[str, Points], size: tuple[int, int] = (WIDTH, HEIGHT)
) -> Chart:
    """Fit all series into one frame: oldest left, zero at the bottom."""
    points = [point for line in series.values() for point in line]
    if not points:
        return Chart(title, 0, 0, ())
    start, end = min(at for at, _ in points), max(at for at, _ in points)
    top = max(value for _, value in points)
    (width, height), seconds = size, end - start
    across, up = width / (seconds or 1), height / (top or 1)
    lines = tuple(
        (
            name,
            " ".join(
                f"{(at - start) * across:.1f},{height - v * up:.1f}" for at, v in thinned(line)
            ),
        )
        for name, line in series.items()
    )
    return Chart(title, top, round(seconds), lines)


def thinned(line: Points) -> Points:
    """So many points: of each stretch of time the highest one, so that no peak is lost."""
    if len(line) <= MOST_POINTS:
        return line
    start, stretch = line[0][0], (line[-1][0] - line[0][0]) / MOST_POINTS or 1.0
    highest: dict[int, tuple[float, float]] = {}
    for point in line:
        at = int((point[0] - start) / stretch)
        highest[at] = max(highest.get(at, point), point, key=lambda one: one[1])
    return list(highest.values())
