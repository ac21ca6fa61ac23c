"""A week of numbers, as far as this process has seen it, in bounded memory."""

from array import array
from collections.abc import Mapping
from itertools import islice, pairwise

from rqretry.admin.incidents import Moment

MINUTE_S, TEN_MINUTES_S = 60.0, 600.0
WEEK_S = 7 * 86_400.0
MOST_GROUPS = 1000
_WIDTH = 4
_VERBS = {"due": 1, "succeed": 2, "fail": 3}

Pair = tuple[str, str]
Points = list[tuple[float, float]]


class Series:
    """Time, due, succeeded and failed, one behind the other; of what does not change, both ends."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._kept = array("d")

    def note(self, at: float, now: Moment) -> None:
        """Keep it, if the time has come; forget what is older than a week."""
        kept = self._kept
        new = (at, float(now.due), float(now.succeed), float(now.fail))
        if kept and at - kept[-_WIDTH] < self._every_s:
            return
        same = len(kept) >= 2 * _WIDTH and kept[1 - 2 * _WIDTH : -_WIDTH] == kept[1 - _WIDTH :]
        if same and kept[1 - _WIDTH :] == array("d", new[1:]):
            del kept[-_WIDTH:]
        kept.extend(new)
        while at - kept[0] > WEEK_S:
            del kept[:_WIDTH]

    def points(self, verb: str) -> Points:
        """What was due, by time; of a verb, how often in a second."""
        column = _VERBS[verb]
        kept = [(row[0], row[column]) for row in rows_of(self._kept)]
        if verb == "due":
            return kept
        return [(at, max(0.0, n - was) / (at - then)) for (then, was), (at, n) in pairwise(kept)]


class Week:
    """All groups together by the minute, each of them every ten minutes."""

    def __init__(self) -> None:
        self.total = Series(MINUTE_S)
        self._groups: dict[Pair, Series] = {}

    def note(self, at: float, groups: Mapping[Pair, Moment], total: Moment) -> None:
        """What was seen at a time; a group that is gone is forgotten."""
        self.total.note(at, total)
        known = self._groups
        self._groups = {
            pair: known.get(pair) or Series(TEN_MINUTES_S) for pair in islice(groups, MOST_GROUPS)
        }
        for pair, series in self._groups.items():
            series.note(at, groups[pair])

    def points(self, pair: Pair, verb: str) -> Points:
        """Of one group; nothing of one that is not kept."""
        series = self._groups.get(pair)
        return series.points(verb) if series else []


def rows_of(kept: "array[float]") -> list[tuple[float, ...]]:
    """The rows of a series."""
    return [tuple(kept[at : at + _WIDTH]) for at in range(0, len(kept), _WIDTH)]
