"""A group's rate limit: one bucket of tokens for all its partitions."""

from typing import Any, NamedTuple

from rqretry.core.rates import per_second
from rqretry.protocol.command import Command, number

BURST_S = 0.25
"""A bucket holds one token and those of this time: what a worker that comes late still finds."""


class Tokens(NamedTuple):
    """What a take answered."""

    given: int | None
    """None: the group has no limit."""
    wait_ms: int
    """Until there are more; 0 for now."""


def rate_set(bucket: str, version: int, rate: str) -> Command[int]:
    """A group's rate limit from now on, "" for none; newer wins."""
    per_s = per_second(rate) if rate else 0.0
    per_ms = repr(per_s / 1000) if rate else ""
    return Command("rate_set", (bucket,), (version, per_ms, repr(1 + per_s * BURST_S)), int)


def rate_take(bucket: str, *, want: int, returned: int = 0) -> Command[Tokens]:
    """Take up to `want` tokens for leases about to be made; give back what is left over."""
    return Command("rate_take", (bucket,), (want, returned), _tokens)


def _tokens(reply: list[Any]) -> Tokens:
    given, wait_ms = reply
    return Tokens(number(given), int(wait_ms))
