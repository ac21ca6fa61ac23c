"""The tokens of groups with a rate limit, as one process takes them (docs/decisions/0019).

They are taken before a lease, for as many messages as there is room for, and what the lease did not
find comes back. While there are none the process waits exactly as long as the server asks for.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from rqretry.core.back_off import BackOff
from rqretry.core.errors import StoreUnavailable
from rqretry.protocol.command import MAX_BATCH
from rqretry.protocol.rate_limit import Tokens, rate_take
from rqretry.transport.store import Store
from rqretry.worker.leases import Intake, LeasedPlace

log = logging.getLogger("rqretry")

Want = tuple[Intake, LeasedPlace, int]
"""How many messages a consumer could take from a place."""


class TokenBuckets:
    """The buckets of all groups of a process, each by its key."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._next_at: dict[str, float] = {}
        self._refused: dict[str, BackOff] = defaultdict(BackOff)

    def next_at(self, bucket: str) -> float:
        """The monotonic time before which a bucket has no tokens for us; past: ask."""
        return self._next_at.get(bucket, 0.0)

    def ask_again(self, bucket: str) -> None:
        """The limit may be another one now."""
        self._next_at.pop(bucket, None)

    async def take(self, wanted: Mapping[str, int]) -> dict[str, int | None]:
        """Take up to these numbers of tokens; answers what each gave, None without a limit."""
        if not wanted:
            return {}
        commands = [rate_take(bucket, want=min(MAX_BATCH, n)) for bucket, n in wanted.items()]
        answers: list[Any] = await self._store.run_each(commands, self._store.patience)
        given: dict[str, int | None] = {}
        for bucket, tokens in zip(wanted, answers, strict=True):
            if isinstance(tokens, Tokens):
                self._next_at[bucket] = time.monotonic() + tokens.wait_ms / 1000
                self._refused.pop(bucket, None)
                given[bucket] = tokens.given
            else:
                self._failed(bucket, tokens)
        return given

    def _failed(self, bucket: str, error: Exception) -> None:
        if isinstance(error, StoreUnavailable) and not self._store.spread:
            raise error
        log.warning("no tokens can be taken from %s, trying again: %s", bucket, error)
        self._refused[bucket].failed(str(error), time.monotonic())
        self._next_at[bucket] = self._refused[bucket].again_at

    async def give_back(self, unused: Mapping[str, int]) -> None:
        """Tokens for messages that were not there."""
        for bucket in unused:
            self._next_at.pop(bucket, None)
        if unused:
            commands = [rate_take(b, want=0, returned=count) for b, count in unused.items()]
            await self._store.run_each(commands, self._store.patience)


def divided(wants: Sequence[Want], tokens: int | None) -> list[Want]:
    """Share out the tokens, first to the places not looked at for the longest; None: no limit."""
    if tokens is None:
        return list(wants)
    given = []
    for consumer, place, want in sorted(wants, key=lambda want: want[1].schedule.looked_at):
        part = min(want, tokens)
        tokens -= part
        if part:
            given.append((consumer, place, part))
    return given
