"""The tokens of groups with a rate limit, as one process takes them (decisions 22).

They are taken before a lease, for as many messages as there is room for, and what the lease did not
find comes back. While there are none the process waits exactly as long as the server said.
"""

import logging
import time
from collections.abc import Iterable, Sequence
from typing import Any

from rqretry.protocol.command import MAX_BATCH
from rqretry.protocol.rate_limit import Tokens, rate_take
from rqretry.transport.store import Store
from rqretry.worker.consumer import Consumer
from rqretry.worker.leases import Place

log = logging.getLogger("rqretry")

_AGAIN_S = 0.5

Want = tuple[Consumer, Place, int]
"""How many messages a consumer could take from a place."""


class Purse:
    """Tokens for all consumers of a process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._next_at: dict[str, float] = {}
        """By bucket: the monotonic time before which it has no tokens for us."""

    def waits_until(self, place: Place) -> float:
        """The monotonic time before which there are no tokens for a place; past: ask."""
        return self._next_at.get(place.keys.bucket, 0.0) if place.rated else 0.0

    def ask_again(self, place: Place) -> None:
        """The limit may be another one now."""
        self._next_at.pop(place.keys.bucket, None)

    async def allot(self, wanted: Sequence[Want]) -> list[Want]:
        """What may be leased of what is wanted: all of it, except where a rate is the limit."""
        allotted = [want for want in wanted if not want[1].rated]
        if len(allotted) == len(wanted):
            return allotted
        now = time.monotonic()
        asking: dict[str, list[Want]] = {}
        for want in wanted:
            if want[1].rated and self.waits_until(want[1]) <= now:
                asking.setdefault(want[1].keys.bucket, []).append(want)
        if asking:
            commands = [rate_take(bucket, want=_total(wants)) for bucket, wants in asking.items()]
            answers: list[Any] = await self._store.run_each(commands, self._store.patience)
            for (bucket, wants), tokens in zip(asking.items(), answers, strict=True):
                if not isinstance(tokens, Tokens):
                    self._failed(bucket, tokens)
                    continue
                self._next_at[bucket] = time.monotonic() + tokens.wait_ms / 1000
                allotted += _divided(wants, tokens.given)
        return allotted

    def _failed(self, bucket: str, error: Exception) -> None:
        if not self._store.spread:
            raise error
        log.warning("no tokens can be taken from %s, trying again: %s", bucket, error)
        self._next_at[bucket] = time.monotonic() + _AGAIN_S

    async def give_back(self, unused: Iterable[tuple[Place, int]]) -> None:
        """Tokens for messages that were not there."""
        totals: dict[str, int] = {}
        for place, count in unused:
            if place.rated and count > 0:
                totals[place.keys.bucket] = totals.get(place.keys.bucket, 0) + count
        for bucket in totals:
            self._next_at.pop(bucket, None)
        if totals:
            commands = [rate_take(b, want=0, returned=count) for b, count in totals.items()]
            await self._store.run_each(commands, self._store.patience)


def share(likely: Sequence[Want]) -> list[Want]:
    """Divide each consumer's room among its places, so that one call does not take it twice."""
    counts: dict[int, int] = {}
    for consumer, _, _ in likely:
        counts[id(consumer)] = counts.get(id(consumer), 0) + 1
    return [(c, s, max(1, -(-room // counts[id(c)]))) for c, s, room in likely]


def _total(wants: Sequence[Want]) -> int:
    return min(MAX_BATCH, sum(want for _, _, want in wants))


def _divided(wants: Sequence[Want], tokens: int | None) -> list[Want]:
    """The tokens, to the places that were looked at the longest ago first; None: no limit."""
    if tokens is None:
        return list(wants)
    given = []
    for consumer, place, want in sorted(wants, key=lambda want: want[1].looked_at):
        part = min(want, tokens)
        tokens -= part
        if part:
            given.append((consumer, place, part))
    return given
