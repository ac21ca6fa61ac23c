"""Lines for an inline SVG: points in, coordinates out; the template draws them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 600, 120
SPARK = (100, 24)
_MOST_POINTS = 300

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
    """At most so many points: of each stretch the highest one, so that no peak is lost."""
    step = -(-len(line) // _MOST_POINTS)
    if step <= 1:
        return line
    return [max(line[at : at + step], key=lambda one: one[1]) for at in range(0, len(line), step)]
