"""What is kept for a time: ids that callers gave, decided transactions, and dead letters.

Dead letters are kept for ever, except where an operator says otherwise.
"""

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rqretry.catalog.topics import Topics
from rqretry.maintenance.quiet import any_key, holding
from rqretry.protocol.command import Command, Each, Operation
from rqretry.protocol.keys import GroupKeys, PartitionKeys
from rqretry.protocol.maintain import Swept, sweep
from rqretry.protocol.operate import purge

log = logging.getLogger("rqretry")

SWEEP_EVERY_S = 30.0
"""How often a partition is looked at in which something is to be forgotten soon."""
RETENTION = "retention"
"""Who purges dead letters, as the history has it."""
_AT_ONCE, _ASKED = 100, 500
"""How many partitions a round sweeps, and about how many it asks whether they keep anything."""
_QUIET_PER_S = 10
"""How many of the other partitions are looked at per second, if they are many."""


class Sweeps:
    """Forgets in each partition what is over, within a minute, at whatever rate it came.

    Any number of processes may do this for the same partitions. A round makes one call for a
    partition; where that was not enough, the next round is due at once.

    Args:
        topics: The topics.
        group_keys: The keys of a group in a partition.
        together: All partitions are on one server, so that one command asks about many.

    Attributes:
        next_at: When the next round is due (monotonic).
    """

    def __init__(
        self,
        topics: Topics,
        group_keys: Callable[[str, int, str], GroupKeys],
        *,
        together: bool = False,
    ) -> None:
        self.next_at = -math.inf
        self._together = together
        self._topics = topics
        self._group_keys = group_keys
        self._due: dict[PartitionKeys, float] = {}

    def round(self, partitions: Iterable[PartitionKeys]) -> Operation[int]:
        """Look at those of the partitions that are due; answers how many dead letters went."""
        now = time.monotonic()
        self._due = {keys: self._due.get(keys, now) for keys in partitions}
        due = [keys for keys, at in self._due.items() if at <= now]
        most = _ASKED if self._together else _AT_ONCE
        due = sorted(due, key=self._due.__getitem__)[:most]
        self._due |= dict.fromkeys(due, now + SWEEP_EVERY_S)
        places: list[tuple[PartitionKeys, list[GroupKeys]]] = []
        for keys in due:
            places.append((keys, (yield from self._groups(keys))))  # noqa: PERF401 - it yields
        if self._together:
            places = yield from holding(places, any_key(kept_keys), _ASKED)
            self._due |= dict.fromkeys([keys for keys, _ in places[_AT_ONCE:]], now)
            places = places[:_AT_ONCE]
        answers = yield from self._each([sweep(keys, groups) for keys, groups in places])
        found: list[Command[Any]] = []
        for (keys, groups), swept in zip(places, answers, strict=True):
            if isinstance(swept, Swept):
                self._due[keys] = now + self._wait_s(swept.next_ms)
                found += purges(groups, swept.dead)
        gone = yield from self._each(found)
        self.next_at = min(self._due.values(), default=now + SWEEP_EVERY_S)
        return sum(verdicts.count(b"OK") for verdicts in gone if isinstance(verdicts, list))

    def _groups(self, keys: PartitionKeys) -> Operation[list[GroupKeys]]:
        """Those that may have dead letters of their own there."""
        yield from self._topics.get_if_there(keys.topic)
        route = self._topics.route(keys.topic, keys.partition)
        return [self._group_keys(keys.topic, keys.partition, group.name) for group in route.groups]

    def _each(self, calls: Sequence[Command[Any]]) -> Operation[list[Any]]:
        """The answers; what fails is logged, and its partition is looked at again later."""
        answers: list[Any] = (yield Each(calls)) if calls else []
        for command, answer in zip(calls, answers, strict=True):
            if isinstance(answer, Exception):
                log.warning(
                    "%s of %s failed, trying again: %s", command.verb, command.keys[0], answer
                )
        return answers

    def _wait_s(self, next_ms: int | None) -> float:
        """Until a partition is looked at again, where the next thing is over in `next_ms`."""
        if next_ms == 0:
            return 0.0
        quiet_s = max(SWEEP_EVERY_S, len(self._due) / _QUIET_PER_S)
        return min(quiet_s, max(SWEEP_EVERY_S, math.inf if next_ms is None else next_ms / 1000))


def kept_keys(place: tuple[PartitionKeys, Sequence[GroupKeys]]) -> list[str]:
    """What holds something that is over at some time."""
    keys, groups = place
    of_groups = (key for group in groups for key in (group.dead, group.consumed))
    return [keys.id_expiry, keys.closed, keys.kept, keys.incoming, *of_groups]


def purges(
    groups: Sequence[GroupKeys], dead: Sequence[Sequence[str]]
) -> Iterable[Command[list[bytes]]]:
    """What deletes the dead letters that a sweep named."""
    return (
        purge(keys, ids, actor=RETENTION) for keys, ids in zip(groups, dead, strict=True) if ids
    )
