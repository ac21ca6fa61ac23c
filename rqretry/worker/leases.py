"""What a worker process holds under lease, and where. The heartbeat (heartbeat.py) renews it.

A place is one consumer group in one partition of one topic. It has leases (what is held), an
outbox (results on their way to the server) and a schedule (when something is due there). Each of
these changes by its own methods only.
"""

import asyncio
import math
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from rqretry.core.back_off import BackOff
from rqretry.core.failure_record import formatted
from rqretry.core.receipt import Receipt
from rqretry.core.waits import LIMITED, MOST_REFUSALS, PAUSED, Refusal
from rqretry.observability.observer import Watched
from rqretry.protocol.keys import GroupKeys
from rqretry.protocol.lease import READY, Failure, Leased, Polled, expected_ms, other_list

LOOK_EVERY_S = 20.0
"""How often each place is looked at, at least, whatever its server reported; as often as its
visibility ends, if that is shorter (lua/lease.lua wakes others for shorter leases)."""
FEED_EVERY_S = 5.0
"""The same where a group consumes another one's dead letters: looking is what fetches them."""
_JUST_NOW_S = 1.0
_REFUSED = {"PAUSED": PAUSED, "LIMITED": LIMITED, "RATED": LIMITED}
_NOT_STARTED = math.nan
_JUMP_MS = 60_000
"""As in lua/include/logical.lua: what is less is no jump."""


class Delivery:
    """One lease of one message in this process.

    `sent_at` is the monotonic time at which the lease, or its last renewal, was *sent*: the server
    counts from later, so what is trusted here ends before it ends there (docs/guarantees.md R23).
    """

    __slots__ = (
        "attempt", "data", "ended_at", "error", "id", "lease_no", "leased_at", "lost", "message",
        "place", "reported_at", "sent_at", "settled", "started_at", "task", "watch",
    )  # fmt: skip

    def __init__(
        self,
        place: "LeasedPlace",
        id_: str,
        data: bytes,
        numbers: tuple[int, int],
        sent_at: float,
        error: str = "",
    ) -> None:
        self.place = place
        self.id = id_
        self.data = data
        self.error = error
        self.lease_no, self.attempt = numbers
        self.leased_at = self.sent_at = sent_at
        self.started_at = self.ended_at = _NOT_STARTED
        """When its handler started, and ended or was called off (monotonic)."""
        self.message: Any = None
        self.task: asyncio.Task[Any] | None = None
        self.watch: Watched | None = None
        self.settled = False
        self.lost = False
        self.reported_at = 0.0
        """When its result was first sent (monotonic), if that call failed; else 0."""

    @property
    def receipt(self) -> Receipt:
        """What the scripts compare."""
        return Receipt(self.id, self.lease_no)

    @property
    def ran_s(self) -> float:
        """How long its handler has run by now; 0 where none has."""
        started = self.started_at
        return 0.0 if math.isnan(started) else time.monotonic() - started

    @property
    def trace(self) -> str:
        """What the failure record keeps, so that the next attempt can be linked to this one."""
        return "" if self.watch is None else self.watch.trace

    def cancel(self) -> None:
        """Let the handler see that its result is not wanted any more."""
        if self.message is not None:
            self.message.cancelled = True


class Leases:
    """What is held of one place: by id, from the lease until it is settled."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[str, Delivery] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, delivery: Delivery) -> bool:
        return self._held.get(delivery.id) is delivery

    def add(self, deliveries: Iterable[Delivery]) -> None:
        """These are leased."""
        for delivery in deliveries:
            self._held[delivery.id] = delivery

    def end(self, *deliveries: Delivery) -> None:
        """These leases are over; the messages may be ours again, under other ones."""
        held = self._held
        for delivery in deliveries:
            if held.get(delivery.id) is delivery:
                del held[delivery.id]

    # The heartbeat's thread calls these.

    def sent_before(self, moment: float) -> list[Delivery]:
        """What runs, or has a result, and was leased or renewed before a monotonic time."""
        return [
            d
            for d in list(self._held.values())
            if d.sent_at < moment and not d.lost and (d.task is not None or d.settled)
        ]

    def take_late(self, leased_before: float) -> list[Delivery]:
        """Take away what should have started: the event loop, which does so sooner, is blocked."""
        taken = []
        for delivery in list(self._held.values()):
            waits = delivery.task is None and not (delivery.settled or delivery.lost)
            if waits and delivery.leased_at < leased_before:
                delivery.lost = True  # a slot that is about to start it sees this, or is seen
                if delivery.task is None:
                    self.end(delivery)
                    taken.append(delivery)
        return taken


class Release(NamedTuple):
    """A message that is given back, uncounted."""

    delivery: Delivery
    delay_ms: int | str
    """When it is due again; "" for at once."""
    most: int = 0
    """How often it may be postponed; 0: it is not postponed."""
    limit: Failure | None = None
    """How it fails where it was postponed more often."""


class Doubt(NamedTuple):
    """A result that was rejected, or never answered."""

    delivery: Delivery
    failure: Failure | None
    """None: it succeeded."""
    reported_at: float
    """When it was first sent, in monotonic time."""
    gone: bool
    """The server answered GONE: the message no longer exists.

    Where the history does not reach back far enough, this result is assumed to have ended it.
    """

    @property
    def result(self) -> tuple[str, str, int]:
        """How the history names it: verb, message and attempt."""
        verb = "succeed" if self.failure is None else "fail"
        return verb, self.delivery.id, self.delivery.attempt


class Outbox:
    """Results on their way to the server. Nothing else puts anything in or takes it out."""

    __slots__ = ("doubts", "failed", "released", "succeeded")

    def __init__(self) -> None:
        self.succeeded: list[Delivery] = []
        self.failed: list[tuple[Delivery, Failure]] = []
        self.released: list[Release] = []
        self.doubts: list[Doubt] = []
        """Results of which nobody knows here whether they were taken."""

    def __len__(self) -> int:
        """Finished deliveries that the server does not know of yet."""
        return len(self.succeeded) + len(self.failed) + len(self.released)

    def take(self) -> tuple[list[Delivery], list[tuple[Delivery, Failure]], list[Release]]:
        """Everything but the doubts, to be sent."""
        taken = self.succeeded, self.failed, self.released
        self.succeeded, self.failed, self.released = [], [], []
        return taken

    def take_doubts(self) -> list[Doubt]:
        """The doubts, to be looked up."""
        taken, self.doubts = self.doubts, []
        return taken


class Tracebacks:
    """Each is formatted once, and sent once: its place keeps it by the failure's fingerprint."""

    __slots__ = ("_noted", "_unsent")

    def __init__(self) -> None:
        self._unsent: dict[str, str] = {}
        self._noted: set[str] = set()

    def note(self, fingerprint: str, error: BaseException) -> None:
        """Keep an error's traceback until it is sent, unless one of its kind was before."""
        if fingerprint not in self._noted:
            self._unsent[fingerprint] = formatted(error)
            self._noted.add(fingerprint)

    def take(self) -> dict[str, str]:
        """Those to send."""
        taken, self._unsent = self._unsent, {}
        return taken

    def put_back(self, taken: dict[str, str]) -> None:
        """It may not have these."""
        self._unsent = {**taken, **self._unsent}


class Schedule:
    """When something is due at a place, in monotonic time, as its server reported last."""

    __slots__ = ("deadline_at", "due_at", "look_every_s", "looked_at", "scheduled_at", "seen")

    def __init__(self, look_every_s: float) -> None:
        self.look_every_s = look_every_s
        """How often it is looked at, whatever its server reported."""
        self.looked_at = 0.0
        """The last lease or maintenance."""
        self.due_at: float | None = None
        """The next delayed message becomes ready; None for none, as below."""
        self.deadline_at: float | None = None
        """The first lease to end does."""
        self.scheduled_at: float | None = None
        """The next scheduled message is to be delivered."""
        self.seen: tuple[int, float] | None = None
        """Server time in ms and monotonic time of the last look, to notice a clock that jumps."""

    @property
    def look_at(self) -> float:
        """When maintenance looks even if nothing is known to be due."""
        # An idle process looks by leasing; a full one does not lease, and looks in its maintenance.
        return self.looked_at + 1.2 * self.look_every_s + 0.5

    @property
    def knows_something(self) -> bool:
        """Whether something is there that falls due."""
        return (self.due_at, self.deadline_at, self.scheduled_at) != (None, None, None)

    def soonest(self) -> float:
        """When maintenance is needed."""
        moments = (self.due_at, self.deadline_at, self.scheduled_at, self.look_at)
        return min(moment for moment in moments if moment is not None)

    def note(self, seen: Leased | Polled, now: float) -> None:
        """What a lease or a look saw, answered at `now`."""
        self.looked_at = now
        self.due_at = _after(now, seen.next_due_ms)
        self.deadline_at = _after(now, seen.next_deadline_ms)
        self.scheduled_at = _after(now, seen.next_scheduled_ms)
        expected = self.expected_ms(now)
        if expected is None or expected <= seen.now_ms <= expected + _JUMP_MS:
            self.seen = (seen.now_ms, now)  # else maintenance says what to expect

    def nothing_held(self, now: float) -> None:
        """A look at `now` saw nothing that could fall due."""
        self.looked_at = now
        self.due_at = self.deadline_at = self.scheduled_at = self.seen = None

    def look_later(self, now: float) -> None:
        """Nothing was seen, and there is no point in looking again before its time."""
        self.looked_at = max(self.looked_at, now)

    def maintained(self, now_ms: int, now: float, expected_ms: int | None = None) -> None:
        """What was due was moved, at this time of the server and of this process."""
        self.looked_at = now
        if now_ms != expected_ms:  # else the server has it from us, and we know it better
            self.seen = now_ms, now

    def promoted(self, next_due_ms: int | None, now: float) -> None:
        """Delayed messages were made ready; milliseconds until there are more."""
        self.due_at = _after(now, next_due_ms)

    def expired(self, again_ms: int | None, now: float) -> None:
        """Leases were expired, or held; None: the next lease reports the next deadline."""
        self.deadline_at = _after(now, again_ms)

    def delivered(self, next_ms: int | None, now: float) -> None:
        """Scheduled messages were delivered; milliseconds until there are more."""
        self.scheduled_at = _after(now, next_ms)

    def expected_ms(self, now: float) -> int | None:
        """What the server's time has to be by our own clock; None before it is known."""
        return expected_ms(self.seen, now)

    def expected_again_ms(self, now: float) -> int | None:
        """The same for what writes deadlines; None where the server was heard of just now."""
        fresh = self.seen is not None and now - self.seen[1] < _JUST_NOW_S
        return None if fresh else self.expected_ms(now)

    def published_for_later(self, now: float) -> None:
        """Something was, perhaps to be due before all else."""
        self.scheduled_at = now


@dataclass(eq=False)
class LeasedPlace:
    """One consumer group in one partition of one topic: where it leases from and settles to."""

    topic: str
    partition: int
    keys: GroupKeys
    visibility_s: float
    longest_s: float = field(default=math.inf, kw_only=True)
    """How long an attempt may take."""
    broadcast: bool = field(default=False, kw_only=True)
    """Nothing is leased from it: its messages are read from a stream."""
    ordered: bool = field(default=False, kw_only=True)
    """A result lets the next message of its message group go."""
    leases: Leases = field(default_factory=Leases, init=False)
    outbox: Outbox = field(default_factory=Outbox, init=False)
    tracebacks: Tracebacks = field(default_factory=Tracebacks, init=False)
    leasing: BackOff = field(default_factory=BackOff, init=False)
    """While its server refuses to lease from it."""
    settling: BackOff = field(default_factory=BackOff, init=False)
    """While its server refuses results."""
    upkeep: BackOff = field(default_factory=BackOff, init=False)
    """While its server refuses to move what is due."""
    empty: bool = field(default=False, init=False)
    """The last lease left nothing, and no wake-up came since."""
    rated: bool = field(default=False, init=False)
    """Its group has a rate limit: a lease needs tokens."""
    refusals: tuple[Refusal, ...] = field(default=(), init=False)
    """When it gave nothing, lately."""
    _refused: tuple[str, float] | None = field(default=None, init=False)
    """Why it gives nothing, and since when."""
    _first: str = field(default=READY, init=False)

    def __post_init__(self) -> None:
        """A schedule for its visibility."""
        self.schedule = Schedule(min(LOOK_EVERY_S, self.visibility_s))

    @property
    def simple(self) -> bool:
        """A lease needs nothing before it: no tokens, and no look at another group's dead."""
        return not self.rated and not self.keys.source

    def next_list(self) -> str:
        """The list that the next lease takes from first: fresh messages and retries in turn."""
        self._first = other_list(self._first)
        return self._first

    def leased(self, answer: Leased, sent_at: float) -> list[Delivery]:
        """What a lease gave, sent at a monotonic time; held from now on."""
        self.empty = answer.exhausted
        self.rated = bool(answer.rate)
        if answer.status != "OK" or self._refused:
            self.refused(_REFUSED.get(answer.status), sent_at)
        if self.schedule.seen is None:  # not `sent_at`: it may have waited for a message to come
            self.schedule.seen = answer.now_ms, time.monotonic()
        if not answer.ids:
            return []
        rows = zip(answer.ids, answer.data, answer.numbers, answer.last_errors, strict=True)
        found = [Delivery(self, id_, data, numbers, sent_at, line)
                 for id_, data, numbers, line in rows]  # fmt: skip
        self.leases.add(found)
        return found

    def refused(self, why: str | None, now: float) -> None:
        """It gives nothing from now on, for this reason; None: it does again."""
        before = self._refused
        if before is not None and before[0] != why:
            self.refusals = (*self.refusals, Refusal(*before, now))[-MOST_REFUSALS:]
            self._refused = None
        if why is not None and (before is None or before[0] != why):
            self._refused = why, now

    def may_hold_more(self) -> None:
        """A wake-up came, or maintenance moved something: the next round leases from it."""
        self.empty = False

    def unreachable(self, now: float) -> None:
        """Its server did not answer: leave it alone for a while."""
        self.empty = True
        self.schedule.look_later(now)


class Intake(Protocol):
    """A consumer, as far as leasing goes."""

    places: list[LeasedPlace]
    """The partitions that it leases from."""

    def room(self) -> int:
        """How many messages it takes now."""

    def accept(self, deliveries: list[Delivery]) -> None:
        """Take leased messages."""


class ConsumerEvents(Protocol):
    """What else a consumer reports to the worker that it is a part of."""

    def lease_lost(self, delivery: Delivery) -> None:
        """A lease ended while the message was handled, or waited for a slot."""

    def stuck(self) -> None:
        """Whether threads of cancelled attempts hold all its slots."""


class Results(Protocol):
    """Takes the results of attempts; a Settler, or for broadcast groups BroadcastResults."""

    @property
    def unsettled(self) -> Collection[LeasedPlace]:
        """Places with results that their servers do not know of yet."""

    def succeed(self, delivery: Delivery) -> None:
        """The attempt succeeded."""

    def fail(self, delivery: Delivery, failure: Failure) -> None:
        """The attempt failed."""

    def release(self, delivery: Delivery, delay_ms: int | str) -> None:
        """The message is given back, uncounted."""

    def postpone(self, delivery: Delivery, delay_ms: int, most: int, limit: Failure) -> None:
        """It is given back for later; more than `most` times, it fails with `limit`."""


def _after(now: float, in_ms: int | None) -> float | None:
    return None if in_ms is None else now + in_ms / 1000
