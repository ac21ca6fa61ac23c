"""One run: processes start, things go wrong, all is healed, and nothing may be missing."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rqretry.core.errors import ConfigError
from rqretry.core.message import Message, ReceiptHandle
from rqretry.core.redis_url import RedisUrl
from rqretry.core.route import Route
from rqretry.testing.clock import START_MS
from tests.model.model import INFLIGHT, Lease
from tests.model.simulation.calls import Broken, Call, idle, require, spelled_out
from tests.model.simulation.chance import Chance
from tests.model.simulation.journal import Journal
from tests.model.simulation.looking import Looker
from tests.model.simulation.loop import Process, VirtualLoop, virtual
from tests.model.simulation.network import NO_FAULTS, Network
from tests.model.simulation.observing import Observer
from tests.model.simulation.plans import LEVELS, draw, turns
from tests.model.simulation.processes import SCHEDULE
from tests.model.simulation.server import Arguments, Server
from tests.model.simulation.slots import Slots

HEAL_S = 600.0
PUBLISHES = frozenset({"publish", "publish_with_options"})
_NOTING = PUBLISHES | {"lease", "succeed", "fail", "release"}
_RESPAWN_S = (0.0, 0.05, 0.5, 3.0)

Start = Callable[["World", Process], Coroutine[Any, Any, None]]
Step = Callable[["World"], None]


@dataclass
class Outcome:
    """What became of a seed.

    Attributes:
        failure: What promise was broken; "" for none.
        digest: A checksum over all events, with their times, requests and replies.
        taken: The names of what happened by chance.
        requests: How many the server executed.
        messages: How many were stored.
        virtual_s: Virtual seconds until all was drained.
    """

    seed: int
    failure: str
    digest: int
    taken: list[str]
    requests: int
    messages: int
    virtual_s: float
    events: list[str] = field(default_factory=list)


class World:
    """The processes of one run, and what is known of them."""

    def __init__(
        self,
        server: Server,
        seed: int,
        kept: AbstractSet[str] | None = None,
        *,
        traced: bool = False,
    ) -> None:
        self.server = server
        self.chance = Chance(seed, kept)
        self.plan = draw(self.chance)
        self.loop = VirtualLoop()  # type: ignore[abstract]  # nobody asks for sockets
        self.network = Network(server, self.loop, self.chance)
        self.network.traced = traced
        self.network.looks, self.network.executed = self._looks, self._executed
        self.network.kill = self.kill
        self.slots = Slots(self.plan.every_s)
        self.journal = Journal(turns(self.plan), self.slots)
        self.healed = False
        self.url = RedisUrl.parse(server.embedded.url)
        self.accepted: set[str] = set()
        """Ids of which publish said that they are stored."""
        self.refused: set[str] = set()
        """Ids of which publish said that nothing was stored."""
        self.restored = False
        """The server went back to older data."""
        self.accepted_since: set[str] = set()
        """Ids that were accepted after that, by a publish that began after it."""
        self.unpublished = 0
        """Publishers that are not done."""
        self._starts: dict[str, Start] = {}
        self._watched: tuple[str, ...] = ()
        self._looked_at = -1
        self.observers: dict[tuple[str, int], Observer] = {}
        self._receipts: set[tuple[Any, ...]] = set()
        self._halved: set[Any] = set()
        """What publishes named that were cut: repeated, they store it again."""
        self._looker: Looker
        self._first_ahead: dict[tuple[str, int], float] = {}
        """By partition, how far logical time was ahead when nothing waited for it there."""

    # -- processes -----------------------------------------------------------------------------

    def start(self, name: str, code: Start) -> None:
        """Start a process; one that is killed, or ends, is started again until all is healed."""
        self._starts[name] = code
        self._spawn(name)

    def _spawn(self, name: str) -> None:
        process = Process(name)
        self.loop.spawn(process, self._live(process))

    async def _live(self, process: Process) -> None:
        try:
            await self._starts[process.name](self, process)
        except ConfigError:  # it lacks a right; its supervisor starts it again
            if not self.plan.denies:
                raise
            self.loop.spawn(None, self.again(process))
        process.alive = False
        self.network.left(process)

    def kill(self, process: Process) -> bool:
        """End a process here and now: none of its code runs on. Once all is healed nobody dies."""
        if not process.alive or self.healed:
            return False
        process.alive = False
        self.network.left(process)
        self.network.note(f"{process.name} is killed")
        self.loop.spawn(None, self.again(process))
        return True

    async def again(self, process: Process) -> None:
        """Start a process again that is gone."""
        name = self.chance.numbered(f"{process.name}/starts again")
        await asyncio.sleep(self.chance.one(name, _RESPAWN_S))
        self._spawn(process.name)

    def freeze(self, process: Process, seconds: float) -> None:
        """Stop a process for a while, as SIGSTOP does."""
        self.network.note(f"{process.name} is frozen")
        process.frozen_until = self.loop.now + seconds

    def accept(self, ids: Iterable[str], *, since: bool = False) -> None:
        """Publish said that these are stored; since: it began when the data were as they are."""
        self.accepted.update(ids)
        if since:
            self.accepted_since.update(ids)

    def _set_clock(self) -> None:
        wrong = self.plan.clock
        if wrong is not None:
            self.journal.wrong = True
            self.server.shift_ms = self._shift_ms

    def _shift_ms(self, seconds: float) -> int:
        """In the end the clock is put right if something waits for a date."""
        wrong = self.plan.clock
        assert wrong is not None
        return 0 if self.healed and self.plan.delays else wrong.shift_ms(self.chance, seconds)

    def _check_time(self, call: Call, reply: Any) -> None:
        """Logical time goes with the loop's, whatever the wall says, where something waits."""
        wrong = self.plan.clock
        if wrong is None or call.where is None or call.verb not in _NOTING or self.restored:
            return
        if call.verb in PUBLISHES and (isinstance(reply, Exception) or reply[0] != b"OK"):
            return  # it has noted no time
        ahead_s = (self.server.logical_ms - START_MS) / 1000 - self.loop.now
        jitter_s = 2 * wrong.jitter_ms / 1000  # ahead before a jump, and ahead in it
        most = max(wrong.step_s, 2.0) + jitter_s + 0.5
        place = self.journal.place(*call.where)
        if call.where not in self._first_ahead or place.observed or not place.keeps_time():
            self._first_ahead[call.where] = ahead_s
        if call.verb == "lease":  # it may read a jump that nobody notes
            return
        least = min(self._first_ahead[call.where], 0.0) - 10.0 - 0.06 * self.loop.now
        require(least <= ahead_s <= most, f"logical time is {ahead_s:g} s ahead in {call.verb}")

    # -- what was executed ---------------------------------------------------------------------

    def _looks(self, verb: str, request_parts: tuple[Any, ...]) -> list[Arguments]:
        """Each call that may have changed a partition is looked behind, in the same round trip."""
        if request_parts[0] != "EVALSHA":
            return []
        call = Call.of(verb, request_parts)
        self._watched = ()
        if call.where is None or self._is_observed(call.where) or not self.journal.knows(call):
            return []
        place = self.journal.place(*call.where)
        self._watched = tuple(place.groups)
        return [self._looker.request(call.where[1], place)]

    def _executed(
        self, verb: str, request_parts: tuple[Any, ...], reply: Any, seen: list[Any], *, cut: bool
    ) -> None:
        if request_parts[0] != "EVALSHA" or str(reply).startswith(("NOSCRIPT", "OOM")):
            return
        if isinstance(reply, Exception) and not cut:
            raise Broken(f"{verb} failed: {reply}")
        call, reply = spelled_out(Call.of(verb, request_parts), reply)
        self._check_time(call, reply)
        if cut and call.verb in PUBLISHES:
            self._halved.update(call.args)
        if call.verb == "lease" and not isinstance(reply, Exception):
            self._check_receipts(call, reply)
        if call.where is None:
            self.journal.blurred |= cut
        elif cut or self._is_observed(call.where):
            self._observe(call, reply, cut=cut)
            return
        if cut or not self.journal.read(call, reply, *self.server.times()):
            return
        assert call.where is not None
        if idle(verb, reply):  # whatever it changed all the same is seen behind the next call
            return
        place, number = self.journal.place(*call.where), call.where[1]
        if not seen or isinstance(seen[0], Exception) or len(place.groups) > len(self._watched):
            self._looker.check(number, place)
        else:
            self._looker.compare(number, place, *self._looker.read(self._watched, seen[0]))

    def _check_receipts(self, call: Call, reply: Any) -> None:
        """A receipt is given out once, whatever becomes of the data."""
        ids = reply[5] if len(reply) > 1 else ()
        entries = reply[7].split(b" ") if ids and reply[7] else [b"-"] * len(ids)
        for id_, entry in zip(ids, entries, strict=True):
            lease_no = int(reply[11]) if entry == b"-" else int(entry.split(b":")[0])
            receipt = (call.where, call.args[0], id_, lease_no)
            again = receipt in self._receipts and id_.decode() not in self._halved
            require(not again, f"{receipt} is given out twice")
            self._receipts.add(receipt)

    def _observe(self, call: Call, reply: Any, *, cut: bool) -> None:
        assert call.where is not None
        observer = self._observer(call.where)
        self.journal.follow(self.journal.place(*call.where), call, reply)
        observer.read(call.verb, call.args, reply, cut=cut, denied=cut and self.server.denies)

    def begun(self, group: str, message: Message[Any]) -> None:
        """A handler begins: the lease it trusts must be the live one."""
        handle = ReceiptHandle.parse(message.receipt_handle)
        one = self.lease_of(group, handle)
        recorded = ""
        if message.remaining() <= 0:
            recorded = "after the end of its lease"
        elif self.plan.clock and self.plan.clock.jumps:  # leases may have ended early
            return
        elif one and (one.place != INFLIGHT or one.lease_no != handle.lease_no):
            recorded = f"under lease {handle.lease_no}, and it is {one}"
        if recorded:  # what a handler raises is an attempt that failed, so it is not raised
            self.loop.fault = Broken(f"{handle.id}: a handler of {group} begins {recorded}")

    def lease_of(self, group: str, handle: ReceiptHandle) -> Lease | None:
        """What the model says of a message; None where it is only observed."""
        where = (handle.topic, handle.partition)
        if self._is_observed(where):
            return None
        return self.journal.place(*where).ledger(group).leases[handle.id]

    # -- the run -------------------------------------------------------------------------------

    def run(self, prepare: Start, populate: Step, audit: Step) -> Outcome:
        """Everything, from an empty server to the last audit."""
        failure = ""
        with virtual(self.loop, self.chance):
            try:
                self.server.reset()
                self._set_clock()
                self._looker = Looker(self.server, len(LEVELS.split()))
                self.journal.owed = self._looker.owed
                self.journal.listed = self._looker.listed
                self._phases(prepare, populate, audit)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is what the seed found
                failure = f"{type(error).__name__}: {error}"
            finally:
                self.loop.close()
        places = self.journal.places.values()
        return Outcome(
            self.chance.seed,
            failure,
            self.network.digest,
            list(self.chance.taken),
            self.network.requests,
            sum(len(place.ever) for place in places),
            self.loop.now,
            self.network.events,
        )

    def _phases(self, prepare: Start, populate: Step, audit: Step) -> None:
        setup = self.loop.spawn(Process("setup"), prepare(self, Process("setup")))
        require(self.loop.run(setup.done, 60.0), "the topic could not be made")
        self.network.faults = self.plan.faults
        populate(self)
        if self.plan.denies:
            self.loop.spawn(None, self._deny())
        if self.plan.restart:
            self.loop.spawn(None, self._restart())
        self.loop.run(lambda: False, self.plan.chaos_s)
        self.network.note("healed")
        self.healed, self.network.faults = True, NO_FAULTS
        self.server.allow()
        heal = self.loop.spawn(Process("healer"), prepare(self, Process("healer")))
        # What was delayed while the clock was ahead is due by that clock.
        wrong = self.plan.clock
        seconds = HEAL_S + (max(0.0, wrong.step_s) if wrong else 0.0)
        drained = self.loop.run(lambda: heal.done() and self._drained(), seconds)
        if not drained:
            left = {str(where): self._unfinished(where) for where in self.journal.places}
            raise Broken(f"not drained after {seconds:g} s: {left}, {self.unpublished} publishers")
        audit(self)

    async def _deny(self) -> None:
        """An operator takes a right away from everybody, and gives it back."""
        await asyncio.sleep(self.plan.chaos_s * self.chance.share("denied at"))
        if self.healed:
            return
        self.network.note(f"denied: {self.plan.denies}")
        self.server.deny(self.plan.denies)
        await asyncio.sleep(4 * self.chance.share("denied for"))
        self.network.note("allowed")
        self.server.allow()

    async def _restart(self) -> None:
        await asyncio.sleep(self.plan.chaos_s / 4)
        routes = {where: place.route for where, place in self.journal.places.items()}
        older = self.server.snapshot() if self.plan.restart == "snapshot" else []
        await asyncio.sleep(self.plan.chaos_s / 4)
        ways: dict[str, Callable[[], None]] = {
            "reload": self.server.reload,
            "scripts": self.server.forget_scripts,
            "crash": self.server.crash,
            "snapshot": partial(self._go_back, older, routes),
        }
        if self.healed:
            return
        self.network.note(f"the server: {self.plan.restart}")
        self.network.restart(ways[self.plan.restart], 0.3)

    def _go_back(self, older: list[Arguments], routes: dict[tuple[str, int], Route]) -> None:
        """What came after the snapshot is lost: from here on partitions are only observed."""
        self.server.restore(older)
        self.journal.blurred = True
        self.restored = True
        self.observers.clear()
        for where, place in self.journal.places.items():
            place.route = Route()
            place.install(routes.get(where, Route()))
            self._observer(where)

    def _is_observed(self, where: tuple[str, int]) -> bool:
        return self.restored or where in self.observers

    def _observer(self, where: tuple[str, int]) -> Observer:
        if where not in self.observers:
            place = self.journal.place(*where)
            self.observers[where] = Observer(self._looker, where[1], place, looks=self.restored)
            place.observed = True
        return self.observers[where]

    def _drained(self) -> bool:
        if self.unpublished or self._looked_at == self.network.requests:
            return False
        self._looked_at = self.network.requests
        return not any(map(self._unfinished, self.journal.places)) and not self._late_slots()

    def _late_slots(self) -> bool:
        """Whether a slot is missing that was due before all was healed."""
        if self.plan.clock or not self.knows_slots:
            return False
        place = self.journal.place(SCHEDULE, 0)
        due = self.slots.upto(START_MS // 1000 + int(self.plan.chaos_s))
        return self.slots.begins is None or not due <= {*self.slots.published(place)}

    @property
    def knows_slots(self) -> bool:
        """Whether there is a schedule, and all about it is known."""
        unknown = self.journal.blurred or self._is_observed((SCHEDULE, 0))
        return self.plan.every_s > 0 and not unknown

    def _unfinished(self, where: tuple[str, int]) -> set[str]:
        """What somebody has to see to; what a cut publish has begun is nobody's."""
        if where in self.observers:
            # Of what was committed after the snapshot, halves may be left that nobody knows.
            lost = self.observers[where].halves() if self.restored else frozenset()
            return (self.observers[where].unfinished() - lost) & self.accepted
        return self.journal.places[where].unfinished()
