"""How large a system has to be for a load, from what messages were measured to cost.

The costs are in costs.json beside this file, which `python -m benchmarks costs` writes: of each the
median of several runs, the least and the most. No I/O but reading that file.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pkgutil import get_data
from typing import Any, NamedTuple

from rqretry.core.errors import refuse
from rqretry.core.limits import MAX_BODY_BYTES, UNLIMITED, check_max_retries
from rqretry.core.retry_policy import CompiledPolicy

BUSY = 0.6
"""The share of its core that a server, or a worker, is planned to use: the rest is for peaks."""
COSTS = (
    "publish_one_us", "publish_bulk_us", "consume_us", "failure_us", "kib_us", "producer_one_us",
    "producer_bulk_us", "worker_us", "worker_failure_us", "stored_bytes", "retry_bytes",
    "kept_bytes", "publish_one_in", "publish_in", "consume_in", "consume_out", "failure_in",
    "failure_out",
)  # fmt: skip
"""What is measured: of the server's time, of the clients', of memory, and of the network."""
_HISTORY_BYTES = 64 * 2**20
"""What the history of a topic takes, once it is full."""
_MICROSECONDS = 1_000_000
_KIB = 1024
_NEGLIGIBLE = 1e-9
_MOST_RETRIES = 100_000


class Range(NamedTuple):
    """A figure, and between what it lies by the spread of the measurements."""

    expected: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Load:
    """What is to be carried.

    Attributes:
        rate: Messages published a second.
        body_bytes: The size of a body.
        failing: The share of attempts that fail.
        policy: The waits between attempts.
        max_retries: After how many a message is dead; -1 for unlimited.
        groups: How many groups get each message.
        bulk: Whether it is published by `publish_many`, in calls of hundreds.
        keep_s: How long what was consumed is kept for a replay.
        outage_s: For how long consumers may be away, while what is published is stored.
        handler_s: How long a handler takes, waiting included.
    """

    rate: float
    body_bytes: int
    failing: float
    policy: CompiledPolicy
    max_retries: int
    groups: int = 1
    bulk: bool = False
    keep_s: float = 0.0
    outage_s: float = 600.0
    handler_s: float = 0.0

    def __post_init__(self) -> None:
        """Raise InvalidArgument for what cannot be."""
        if not 0 < self.body_bytes <= MAX_BODY_BYTES:
            refuse("body", self.body_bytes, f"must be 1 to {MAX_BODY_BYTES} bytes")
        if not 0 <= self.failing <= 1:
            refuse("failing", self.failing, 'must be a share of the attempts, such as "2%"')
        limit = "unlimited" if self.max_retries == UNLIMITED else self.max_retries
        if check_max_retries(limit) == UNLIMITED and self.failing == 1:
            refuse("failing", "100%", "would never end with unlimited retries: give --max-retries")

    def retries(self) -> tuple[float, float]:
        """How many retries a message has on average in a group, and how many seconds it waits."""
        count = waits_s = 0.0
        most = _MOST_RETRIES if self.max_retries == UNLIMITED else self.max_retries
        reached = 1.0
        for retry in range(1, most + 1):
            reached *= self.failing
            if reached < _NEGLIGIBLE:
                break
            count += reached
            waits_s += reached * self.policy.delay_ms(retry) / 1000
        return count, waits_s

    @property
    def dying(self) -> float:
        """The share of a group's messages that are dead in the end."""
        return 0.0 if self.max_retries == UNLIMITED else self.failing ** (self.max_retries + 1)


def read_costs() -> tuple[dict[str, Range], dict[str, Any]]:
    """What messages cost where it was measured, and with what that was."""
    stored = json.loads(get_data(__package__ or "", "costs.json") or b"{}")
    costs: Mapping[str, list[float]] = stored["costs"]
    return {name: Range(*costs[name]) for name in COSTS}, stored["about"]


def plan(load: Load, costs: Mapping[str, Range]) -> dict[str, Range]:
    """What a load needs, each figure as it is expected and by the least and the most costs.

    Returns:
        server_busy: Of one server's core; primaries: Servers at 60 % of a core; worker_busy,
        workers: The same of worker processes, for handlers that do nothing; slots: Handlers at
        once; producer_busy: What publishing takes; memory: Bytes at most, of all primaries
        together; waiting, kept, backlog: What part of it is messages that wait for a retry, that
        are kept, and that are published while consumers are away; dead_per_day: Bytes of dead
        letters that come every day; network_in, network_out: Bytes a second to and from servers.
    """
    every = [_plan(load, {name: cost[n] for name, cost in costs.items()}) for n in range(3)]
    return {name: Range(*(figures[name] for figures in every)) for name in every[0]}


def _plan(load: Load, cost: Mapping[str, float]) -> dict[str, float]:
    retries, waits_s = load.retries()
    given = load.rate * load.groups
    how = "bulk" if load.bulk else "one"
    size_us = cost["kib_us"] * load.body_bytes / _KIB
    server_us = load.rate * (cost[f"publish_{how}_us"] + size_us) + given * (
        cost["consume_us"] + size_us + retries * (cost["failure_us"] + size_us)
    )
    worker_us = given * (cost["worker_us"] + retries * cost["worker_failure_us"])
    stored = load.body_bytes + cost["stored_bytes"]
    waiting = given * waits_s * (stored + cost["retry_bytes"])
    kept = load.rate * load.keep_s * (load.body_bytes + cost["kept_bytes"])
    backlog = load.rate * load.outage_s * stored
    sent = cost["publish_one_in" if how == "one" else "publish_in"] + load.body_bytes
    once_more = retries * load.body_bytes
    return {
        "server_busy": server_us / _MICROSECONDS,
        "primaries": math.ceil(server_us / _MICROSECONDS / BUSY),
        "worker_busy": worker_us / _MICROSECONDS,
        "workers": math.ceil(worker_us / _MICROSECONDS / BUSY),
        "slots": math.ceil(given * (1 + retries) * load.handler_s),
        "producer_busy": load.rate * cost[f"producer_{how}_us"] / _MICROSECONDS,
        "memory": waiting + kept + backlog + _HISTORY_BYTES,
        "waiting": waiting,
        "kept": kept,
        "backlog": backlog,
        "dead_per_day": given * load.dying * 86_400 * (stored + cost["retry_bytes"]),
        "network_in": load.rate * sent
        + given * (cost["consume_in"] + retries * cost["failure_in"]),
        "network_out": given
        * (load.body_bytes + cost["consume_out"] + once_more + retries * cost["failure_out"]),
    }
