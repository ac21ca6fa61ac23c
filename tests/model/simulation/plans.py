"""What a run is made of, drawn from its seed (swarm testing).

Each run has only some of the features and some of the faults, each at a rate of its own: a fault
that is always there hides what only its absence shows.
"""

import math
from dataclasses import dataclass, replace

from tests.model.simulation.chance import Chance
from tests.model.simulation.network import Faults
from tests.model.simulation.server import MEMORY

TAGS = ("red", "blue", "green")
LEVELS = "1s 2s 5s 20s"
LADDERS = ("1s", "500ms 2s", "1s 5s", "100ms 1s 3s")
STEPS_S = (-3600.0, -600.0, -30.0, -5.0, -1.0, 45.0, 600.0, 3600.0)
"""By how much a server's clock is put back or forward."""
DENIED = (
    MEMORY,
    "hset",
    "hdel",
    "zadd",
    "zrem",
    "rpush",
    "lrem",
    "ltrim",
    "set",
    "del",
    "hincrby",
    "xadd",
)
_BACKLOG = 200
MAX_POSTPONES = 2
MINUTE_S = 60
DURATIONS_S = (0.0, 0.0, 0.0, 0.01, 0.1, 0.5, 1.5, 4.0)


@dataclass(frozen=True)
class GroupPlan:
    """A consumer group."""

    name: str
    kind: str
    ordered: bool
    tags: str
    max_retries: int
    ladder: str
    visibility_s: float
    concurrency: int
    max_inflight: int | None
    rate_limit: str | None
    batch: int
    """The most messages of one call of its handler; 0: it takes single messages."""
    comes_s: float = 0.0
    """When it comes: with the others, or while the topic is in use."""
    begins_s: float | None = None
    """From when on it wants what is kept, and what is stored."""


@dataclass(frozen=True)
class Clock:
    """A server's clock that is wrong."""

    at_s: float
    step_s: float
    lasts_s: float
    """How long it is off by the step; for ever, if it is the clock of another server."""
    jitter_ms: int

    @property
    def jumps(self) -> bool:
        """Whether it is put forward, or put right after it was behind."""
        return self.lasts_s > 0 and (self.step_s > 0 or self.lasts_s < math.inf)

    def shift_ms(self, chance: Chance, seconds: float) -> int:
        """How far it is off at a time; it jitters twenty times a second."""
        stepped = self.at_s <= seconds < self.at_s + self.lasts_s
        jitter = self.jitter_ms * (2 * chance.share(f"clock/{int(seconds * 20)}") - 1)
        return round(stepped * self.step_s * 1000 + jitter)


@dataclass(frozen=True)
class Plan:
    """One run."""

    partitions: int
    groups: tuple[GroupPlan, ...]
    workers: int
    publishers: int
    messages: int
    chaos_s: float
    faults: Faults
    repeats_s: float
    """How long a store repeats what was not answered."""
    growth: int
    """How many partitions the topic gets while it is in use."""
    bulks: bool
    delays: bool
    own_ids: bool
    message_groups: int
    transactions: bool
    upkeep: bool
    operators: bool
    kills: float
    """How often, a message, a handler kills its process."""
    freezes: float
    stops: float
    lasts: float
    """By what the time that handlers take is multiplied: nothing grows while much is unfinished."""
    fails: float
    dies_late: float
    clock: Clock | None
    denies: str
    """What the server refuses for a while: a command by an ACL, or more memory."""
    restart: str
    """"", "reload", "scripts", "snapshot" or "crash"."""
    anew: float
    """How often, a receive, a simple consumer is made anew."""
    every_s: int
    """A schedule has a slot so often; 0: there is none."""
    keep: tuple[float, int] | None
    """For how many seconds, and how many bytes of it, the topic keeps what was consumed."""
    backlog: int = 0
    """How many messages for each partition are published at once."""


def draw(chance: Chance) -> Plan:
    """The plan of a seed."""

    def some(name: str, share: float) -> bool:
        return chance.share(f"plan/{name}") < share

    def rate(name: str, share: float, most: float) -> float:
        return most * chance.share(f"plan/{name} rate") if some(name, share) else 0.0

    partitions = chance.one("plan/partitions", (1, 1, 1, 2, 3))
    count = chance.one("plan/groups", (1, 1, 1, 2, 2, 3))
    growth = chance.one("plan/new partitions", (1, 1, 2)) if some("growth", 0.2) else 0
    in_order = 0.8 if growth else 0.35
    most = partitions + growth
    groups = tuple(_group(chance, number, most, in_order) for number in range(count))
    calm = some("calm", 0.4 if growth else 0.05)
    faults = Faults(
        refused=rate("refused", 0.4, 0.1),
        lost_request=rate("lost request", 0.5, 0.15),
        lost_reply=rate("lost reply", 0.6, 0.25),
        late=rate("late", 0.5, 0.15),
        repeated=rate("repeated", 0.6, 0.25),
        cut_short=rate("cut short", 0.4, 0.3),
        killed=rate("killed", 0.5, 0.02),
        cut_script=rate("cut script", 0.12, 0.05),
        latest_s=chance.one("plan/latest", (0.5, 3.0, 8.0)),
    )
    clock = _clock(chance) if some("clock", 0.3) else None
    plan = Plan(
        partitions=partitions,
        groups=groups,
        workers=chance.one("plan/workers", (1, 1, 2, 2, 3, 4, 6)),
        publishers=chance.one("plan/publishers", (1, 1, 2)),
        messages=chance.whole("plan/messages", 4, 24),
        chaos_s=chance.one("plan/chaos", (5.0, 10.0, 20.0)),
        faults=Faults() if calm else faults,
        repeats_s=chance.one("plan/repeats", (6.0, 2.0, 0.3)),
        growth=growth,
        bulks=some("bulks", 0.3),
        delays=some("delays", 0.4),
        own_ids=some("own ids", 0.4),
        message_groups=chance.one("plan/message groups", (1, 2, 3))
        if some("named", 1.0 if growth else 0.6) else 0,
        transactions=some("transactions", 0.3),
        upkeep=some("upkeep", 0.3),
        operators=some("operators", 0.4),
        kills=rate("kills", 0.4, 0.1),
        freezes=rate("freezes", 0.3, 0.1),
        stops=rate("stops", 0.3, 0.05),
        lasts=0.1 if growth else 1.0,
        fails=rate("fails", 0.7, 0.05 if growth else 0.6),
        dies_late=rate("never acknowledged", 0.5, 0.5),
        clock=clock,
        denies=chance.one("plan/denied", DENIED) if some("denied", 0.1) else "",
        restart="" if growth else _restart(chance.share("plan/restart")),
        anew=chance.one("plan/made anew", (0.0, 0.1, 0.1, 0.1, 0.1, 1.0)),
        keep=_keep(chance) if some("keep", 0.1) else None,
        every_s=_interval(chance, clock) if some("schedule", 0.08) else 0,
    )  # fmt: skip
    if plan.keep:
        late = (_late(chance, plan),) if some("comes late", 0.5) else ()
        plan = replace(plan, operators=True, groups=(*plan.groups, *late))
    return _behind(chance, plan) if some("backlog", 0.02) and not growth else plan


def _late(chance: Chance, plan: Plan) -> GroupPlan:
    """A group of simple consumers that begins in the past."""
    group = _group(chance, len(plan.groups), plan.partitions + plan.growth, 0.0)
    comes_s = plan.chaos_s * chance.share("plan/comes at")
    begins_s = comes_s * chance.share("plan/begins at")
    return replace(
        group, kind="simple", tags="*", max_inflight=None, rate_limit=None, batch=0,
        comes_s=comes_s, begins_s=begins_s,
    )  # fmt: skip


def _behind(chance: Chance, plan: Plan) -> Plan:
    """One group of simple consumers, some of whose messages wait behind many."""
    group = replace(
        plan.groups[0],
        kind="simple",
        ordered=False,
        tags="*",
        max_inflight=None,
        rate_limit=None,
        batch=0,
        max_retries=chance.one("plan/backlog retries", (1, 1, 2, 16)),
        visibility_s=2.0,
    )
    partitions = chance.one("plan/backlog partitions", (2, 4))
    return replace(
        plan,
        partitions=partitions,
        groups=(group,),
        workers=chance.one("plan/backlog workers", (1, 2, 3)),
        backlog=_BACKLOG // partitions,
        chaos_s=10.0,
        fails=0.9,
        anew=chance.one("plan/backlog anew", (0.0, 0.1, 0.1, 1.0 if partitions == 2 else 0.2)),
    )


def _clock(chance: Chance) -> Clock:
    return Clock(
        at_s=1 + 8 * chance.share("plan/clock at"),
        step_s=chance.one("plan/clock step", STEPS_S),
        lasts_s=chance.one("plan/clock lasts", (0.0, 0.5, 0.5, 5.0, math.inf, math.inf)),
        jitter_ms=chance.one("plan/clock jitter", (0, 0, 500)),
    )


def _keep(chance: Chance) -> tuple[float, int]:
    """More than there is, or so little that it is forgotten soon."""
    return chance.one("plan/keep", ((600.0, 1 << 20), (4.0, 1 << 20), (600.0, 2048)))


def _interval(chance: Chance, clock: Clock | None) -> int:
    """Of a schedule; no step, nor its end, skips more slots of it than are made up."""
    return MINUTE_S if clock and clock.lasts_s > 0 else chance.one("plan/every", (1, 2, 3))


def _restart(share: float) -> str:
    """A restart from the append-only file takes the time of many runs."""
    for how, most in (("crash", 0.01), ("reload", 0.06), ("scripts", 0.12), ("snapshot", 0.18)):
        if share < most:
            return how
    return ""


def _group(chance: Chance, number: int, partitions: int, in_order: float) -> GroupPlan:
    def pick(name: str) -> float:
        return chance.share(f"plan/group {number} {name}")

    kind = "simple" if pick("kind") < 0.25 else "push"
    ordered = pick("ordered") < in_order
    tags = chance.one(f"plan/group {number} tags", (*TAGS, "red || blue"))
    ladder = chance.one(f"plan/group {number} ladder", LADDERS)
    visibility = (0.5, 1.0, 2.0, 5.0) if kind == "simple" else (1.0, 2.0, 3.0, 6.0)
    return GroupPlan(
        name=f"g{number}",
        kind=kind,
        ordered=ordered,
        tags=tags if pick("filters") < 0.2 and not ordered else "*",
        max_retries=chance.one(f"plan/group {number} retries", (0, 1, 2, 3, 16)),
        ladder=ladder.split()[0] if ordered else ladder,
        visibility_s=chance.one(f"plan/group {number} visibility", visibility),
        concurrency=chance.one(f"plan/group {number} concurrency", (1, 2, 4, 8)),
        max_inflight=partitions * chance.whole(f"plan/group {number} most", 1, 3)
        if pick("limited") < 0.2 and kind == "push" else None,
        rate_limit="20/s" if pick("rated") < 0.1 and kind == "push" else None,
        batch=chance.whole(f"plan/group {number} most in a batch", 1, 5)
        if pick("batches") < 0.3 and kind == "push" else 0,
    )  # fmt: skip


def turns(plan: Plan) -> int:
    """After how many leases whoever is first in a lane had its turn; see Fairness.

    Consumers that are kept take all lanes of all partitions in turn, but for what is lost on the
    way; those that are made anew each time draw lots.
    """
    partitions = plan.partitions + plan.growth
    return 8 * partitions + 24 if plan.anew == 1 else 5 * partitions + 12


def plan_of(seed: int) -> Plan:
    """The plan of a seed."""
    return draw(Chance(seed))
