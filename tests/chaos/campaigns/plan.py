"""What one run of a campaign does: drawn from its kind and its seed, the same every time.

The moments are drawn, not what the machine does with them: a seed replays the faults, their order
and their gaps, and not the interleaving.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """The kinds of runs; what is counted as a trial stands behind each."""

    WORKER = "worker-kill"
    """Workers and publishers are killed with -9 or stood still. A trial is a killed worker."""
    REDIS = "redis-kill"
    """Redis, with appendfsync always, is killed with -9 and restarted. A trial is a kill."""
    NETWORK = "network"
    """Everybody speaks to Redis through a proxy with random rules. A trial is a run."""
    FAILOVER = "failover"
    """The primary behind Sentinels is killed, or told to hand over. A trial is a failover."""
    POWER = "power-loss"
    """As redis-kill, and what was not synced is cut off. A trial is a power loss."""
    EVERYSEC = "power-everysec"
    """The same with appendfsync everysec, which may lose the last second or two."""
    RIGHTS = "rights"
    """An ACL denies everybody one command for a while. A trial is a command that was denied."""
    SLOTS = "slot-moves"
    """On a cluster partitions move to other primaries, key by key. A trial is a move."""
    EMPTY = "empty"
    """The server is emptied, or comes back without its data. A trial is one of these."""
    EVICTING = "evicting"
    """Eviction is switched on, with room left. A trial is one time of it."""
    GATEWAY = "gateway-kill"
    """A gateway, or Redis behind it, is killed with -9. A trial is a kill."""
    MIXED = "mixed"
    """All that one server can suffer from, at once. A trial is a run."""


class What(StrEnum):
    """What strikes."""

    KILL_WORKER = "kill a worker"
    STOP_WORKER = "stop a worker for a while"
    KILL_PUBLISHER = "kill a publisher"
    KILL_REDIS = "kill Redis"
    POWER_LOSS = "lose power"
    FLUSH_SCRIPTS = "forget the scripts"
    PAUSE_WRITES = "pause writes"
    NEW_RULES = "other network faults"
    KILL_PRIMARY = "kill the primary"
    HAND_OVER = "hand over to the replica"
    DENY = "deny a command"
    MOVE_SLOT = "move a slot"
    FLUSH = "flush all data"
    LOSE_DATA = "restart without data"
    EVICT = "switch eviction on"
    KILL_GATEWAY = "kill a gateway"


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault: `after_s` seconds after the one before is done, for `for_s` seconds."""

    after_s: float
    what: What
    which: int = 0
    """Picks the victim, or the seed of network rules."""
    for_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """One run.

    Attributes:
        kind, seed, size: What it was drawn from.
        strikes: The faults, in order.
        workers: Worker processes.
        publishers: Publisher processes.
        groups: Consumer groups; a handler of each second one runs in threads.
        partitions: Of the topic.
        rate: Messages a second that each publisher aims at.
        batch: Messages in one call at most.
        durabilities: What the publishers ask for, in turn; "" is the primary's memory.
    """

    kind: Kind
    seed: int
    size: float
    strikes: tuple[Strike, ...] = field(repr=False)
    workers: int
    publishers: int
    groups: int
    partitions: int
    rate: int
    batch: int
    durabilities: tuple[str, ...] = ("",)

    @property
    def proxied(self) -> bool:
        """Whether everybody speaks through a proxy."""
        return self.kind in (Kind.NETWORK, Kind.MIXED)

    @property
    def name(self) -> str:
        """What to repeat it by; see `named`."""
        return f"{self.kind}:{self.seed}" + ("" if self.size == 1 else f"@{self.size:g}")

    @property
    def trials(self) -> int:
        """What this run is to count for; see Kind."""
        return trials_of(self.kind, Counter(strike.what for strike in self.strikes))


_COUNTED = {
    Kind.WORKER: (What.KILL_WORKER,),
    Kind.REDIS: (What.KILL_REDIS,),
    Kind.FAILOVER: (What.KILL_PRIMARY, What.HAND_OVER),
    Kind.POWER: (What.POWER_LOSS,),
    Kind.EVERYSEC: (What.POWER_LOSS,),
    Kind.RIGHTS: (What.DENY,),
    Kind.SLOTS: (What.MOVE_SLOT,),
    Kind.EMPTY: (What.FLUSH, What.LOSE_DATA),
    Kind.EVICTING: (What.EVICT,),
    Kind.GATEWAY: (What.KILL_GATEWAY, What.KILL_REDIS),
}
KILLS = (
    What.KILL_WORKER, What.KILL_PUBLISHER, What.KILL_REDIS, What.POWER_LOSS, What.KILL_PRIMARY,
    What.LOSE_DATA, What.KILL_GATEWAY,
)  # fmt: skip
"""Strikes that end a process with SIGKILL."""


def trials_of(kind: Kind, strikes: Counter[What]) -> int:
    """What so many strikes count for in a run of a kind; see Kind."""
    counted = _COUNTED.get(kind)
    return sum(strikes[what] for what in counted) if counted else 1


Draw = Callable[[random.Random, float], list[Strike]]


FULL = {
    Kind.WORKER: 60, Kind.REDIS: 12, Kind.FAILOVER: 5, Kind.POWER: 6, Kind.EVERYSEC: 3,
    Kind.RIGHTS: 6, Kind.SLOTS: 8, Kind.EMPTY: 4, Kind.EVICTING: 2,
    Kind.GATEWAY: 12,
}  # fmt: skip
"""Trials of a full-size run; of the other kinds a run is a trial."""


def draw(kind: Kind, seed: int, size: float = 1.0) -> Plan:
    """The plan of a kind and a seed.

    Args:
        kind: The kind.
        seed: The seed.
        size: How much of the full number of strikes; small for tests.
    """
    chance = random.Random(f"{kind}:{seed}")
    strikes = _DRAWS[kind](chance, size)
    return Plan(
        kind,
        seed,
        size,
        tuple(strikes),
        workers=chance.randint(3, 4),
        publishers=2,
        # A second group gets only what comes after it, not what comes first to an empty server.
        groups=1 if kind in (Kind.EMPTY, Kind.GATEWAY) else chance.choice((1, 1, 2)),
        partitions=chance.choice((2, 4, 6) if kind is Kind.SLOTS else (1, 1, 2, 4)),
        rate=RATE,
        batch=chance.choice((20, 100, 300)),
        durabilities=("replica:1", "") if kind is Kind.FAILOVER else ("",),
    )


def named(name: str) -> Plan:
    """The plan with a name, such as "redis-kill:17" or "redis-kill:17@0.5"."""
    kind, _, rest = name.partition(":")
    seed, _, size = rest.partition("@")
    return draw(Kind(kind), int(seed), float(size or 1))


RATE = 420
"""Messages a second of one publisher: what three runs at a time on two cores keep up with."""


def _worker(chance: random.Random, size: float) -> list[Strike]:
    strikes = []
    for _ in range(max(3, round(FULL[Kind.WORKER] * size))):
        strikes.append(_strike(chance, What.KILL_WORKER, 0.1, 0.6))
        odd = chance.random()
        if odd < 0.05:
            strikes.append(_strike(chance, What.STOP_WORKER, 0.0, 0.1, (0.2, 3.0)))
        elif odd < 0.15:
            strikes.append(_strike(chance, What.KILL_PUBLISHER, 0.0, 0.1))
    return strikes


def _redis(chance: random.Random, size: float) -> list[Strike]:
    return [
        _strike(chance, What.KILL_REDIS, 0.1, 1.0, (0.0, 0.3))
        for _ in range(max(2, round(FULL[Kind.REDIS] * size)))
    ]


def _power(chance: random.Random, size: float) -> list[Strike]:
    return [
        _strike(chance, What.POWER_LOSS, 0.1, 1.0, (0.0, 0.2))
        for _ in range(max(1, round(FULL[Kind.POWER] * size)))
    ]


def _everysec(chance: random.Random, size: float) -> list[Strike]:
    return [
        _strike(chance, What.POWER_LOSS, 1.2, 2.2, (0.0, 0.2))
        for _ in range(max(1, round(FULL[Kind.EVERYSEC] * size)))
    ]


def _network(chance: random.Random, size: float) -> list[Strike]:
    lasting = (1.0 * size, 1.5 * size)
    return [_strike(chance, What.NEW_RULES, 0.0, 0.1, lasting) for _ in range(2)]


def _failover(chance: random.Random, size: float) -> list[Strike]:
    return [
        _strike(chance, chance.choice((What.KILL_PRIMARY, What.HAND_OVER)), 0.5, 1.5)
        for _ in range(max(1, round(FULL[Kind.FAILOVER] * size)))
    ]


def _rights(chance: random.Random, size: float) -> list[Strike]:
    return [
        _strike(chance, What.DENY, 0.3, 1.0, (0.1, 1.0))
        for _ in range(max(2, round(FULL[Kind.RIGHTS] * size)))
    ]


def _slots(chance: random.Random, size: float) -> list[Strike]:
    return [
        _strike(chance, What.MOVE_SLOT, 0.2, 0.8)
        for _ in range(max(2, round(FULL[Kind.SLOTS] * size)))
    ]


def _empty(chance: random.Random, size: float) -> list[Strike]:
    return [
        _strike(chance, chance.choice((What.FLUSH, What.LOSE_DATA)), 1.0, 2.0, (0.0, 0.3))
        for _ in range(max(1, round(FULL[Kind.EMPTY] * size)))
    ]


def _evicting(chance: random.Random, size: float) -> list[Strike]:
    return [
        _strike(chance, What.EVICT, 0.5, 2.0, (0.5, 2.0))
        for _ in range(max(1, round(FULL[Kind.EVICTING] * size)))
    ]


def _gateway(chance: random.Random, size: float) -> list[Strike]:
    both = (What.KILL_GATEWAY, What.KILL_GATEWAY, What.KILL_REDIS)
    return [
        _strike(chance, both[number % len(both)], 0.3, 1.0, (0.0, 0.3))
        for number in range(max(3, round(FULL[Kind.GATEWAY] * size)))
    ]


_ANY = (
    What.KILL_WORKER, What.KILL_WORKER, What.KILL_WORKER, What.STOP_WORKER, What.KILL_PUBLISHER,
    What.KILL_REDIS, What.FLUSH_SCRIPTS, What.PAUSE_WRITES, What.NEW_RULES,
)  # fmt: skip


def _mixed(chance: random.Random, size: float) -> list[Strike]:
    chosen = chance.sample(_ANY, chance.randint(2, 6))  # swarm: each seed has faults of its own
    return [
        _strike(chance, chance.choice(chosen), 0.05, 1.0, (0.05, 1.0))
        for _ in range(max(4, round(12 * size)))
    ]


_DRAWS: dict[Kind, Draw] = {
    Kind.WORKER: _worker,
    Kind.REDIS: _redis,
    Kind.NETWORK: _network,
    Kind.FAILOVER: _failover,
    Kind.POWER: _power,
    Kind.EVERYSEC: _everysec,
    Kind.RIGHTS: _rights,
    Kind.SLOTS: _slots,
    Kind.EMPTY: _empty,
    Kind.EVICTING: _evicting,
    Kind.GATEWAY: _gateway,
    Kind.MIXED: _mixed,
}


def _strike(
    chance: random.Random,
    what: What,
    least_s: float,
    most_s: float,
    lasting: tuple[float, float] = (0.0, 0.0),
) -> Strike:
    after, which = chance.uniform(least_s, most_s), chance.randrange(1, 1 << 30)
    return Strike(round(after, 3), what, which, round(chance.uniform(*lasting), 3))
