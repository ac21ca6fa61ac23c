"""What Redis keeps of the past, read once a minute however many look."""

import time
from collections.abc import Awaitable, Callable, Sequence

from rqretry.protocol.series import Point

Pair = tuple[str, str]
"""A topic and a group."""
KEPT_S = 20.0
MOST_KEPT = 64


class Past:
    """The last answers of `read`, which is asked for a group, or None for all, and minutes."""

    def __init__(self, read: Callable[[Pair | None, int], Awaitable[Sequence[Point]]]) -> None:
        self._read = read
        self._kept: dict[tuple[Pair | None, int], tuple[float, Sequence[Point]]] = {}

    async def points(self, pair: Pair | None, minutes: int) -> Sequence[Point]:
        """As of some seconds ago."""
        kept_until, points = self._kept.get((pair, minutes), (0.0, ()))
        if time.monotonic() >= kept_until:
            points = await self._read(pair, minutes)
            self._kept.pop((pair, minutes), None)
            self._kept[pair, minutes] = time.monotonic() + KEPT_S, points
            if len(self._kept) > MOST_KEPT:
                del self._kept[next(iter(self._kept))]
        return points
