"""Whose turn it is: of each place of a simple consumer its new messages and its retries."""

import random
from collections.abc import Iterable, Sequence
from itertools import count

from rqretry.catalog.store import Place
from rqretry.protocol.lease import READY, RETRY, other_list


class Turns:
    """New messages and retries take turns, and of their places the one that waited longest.

    It begins anywhere, so that consumers which are made anew for each receive are as fair.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._lane = chance.choice((READY, RETRY))
        self._served: dict[tuple[str, Place], float] = {}
        self._numbers = count()

    def next_lane(self) -> str:
        """The lane that is preferred this time."""
        self._lane = other_list(self._lane)
        return self._lane

    def order(self, lane: str, places: Iterable[Place]) -> list[Place]:
        """The places, the one that waited longest in this lane first."""
        served = self._served
        return sorted(
            places, key=lambda place: served.setdefault((lane, place), self._chance.random() - 1)
        )

    def had(self, lane: str, place: Place) -> None:
        """It was this one's turn."""
        self._served[lane, place] = next(self._numbers)

    def plan(
        self, lane: str, listed: dict[Place, dict[str, int]]
    ) -> Sequence[tuple[str, Place, int]]:
        """What to lease, by how many each place has: all of this lane, then of the other."""
        return [
            (each, place, listed[place][each])
            for each in (lane, other_list(lane))
            for place in self.order(each, listed)
            if listed[place][each] > 0
        ]
