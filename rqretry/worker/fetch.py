"""Leasing for all consumers of a process: one loop, one connection.

The loop leases from every place that has room and may hold something, all in one round trip. When
nothing does, it blocks on the wake keys of those with room. With a few places the wake-up and the
leases go in one round trip (docs/decisions/0128).
How many messages a consumer takes is decided by `Slots.room` in slots.py.
"""

import asyncio
import logging
import math
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from rqretry.checks.acl import denied
from rqretry.core.errors import ConfigError, RqretryError, StoreUnavailable
from rqretry.core.receipt import Receipt
from rqretry.core.waits import LIMITED
from rqretry.maintenance.process_exits import explain_expired
from rqretry.maintenance.quiet import holding
from rqretry.observability import observer
from rqretry.protocol.command import Command, batches
from rqretry.protocol.lease import (
    OK,
    Leased,
    Polled,
    lease,
    poll,
    renew,
    something_held,
    with_large,
)
from rqretry.protocol.maintain import feed_dlq_group
from rqretry.transport.replies import is_error
from rqretry.transport.store import Store, jitter
from rqretry.worker.leases import FEED_EVERY_S, LOOK_EVERY_S, Intake, LeasedPlace
from rqretry.worker.rate_limiter import TokenBuckets, Want, divided
from rqretry.worker.wakeups import Alarm, WakeUps

log = logging.getLogger("rqretry")

_PROBED, _FEW, _POLLED = 250, 8, 100
"""How many places one command asks about: at first, at least, and where they hold something."""
_OFTEN_S, _LOOKS_PER_S = 5.0, 500
"""How often a place is looked at where that costs little, and at how many a second at most."""
_TOGETHER = 4
"""Behind a wait for so many places at most a lease is sent for each."""
_BEHIND_MS = 1000
_SHORT_S = 1.0
"""A wait for tokens that is longer than this ends early when the group's settings change."""


Pair = tuple[Intake, LeasedPlace]


class ResultsAhead(Protocol):
    """Settles; a Settler."""

    def has_results(self, place: LeasedPlace) -> bool:
        """Whether a place has results that its server can be sent now."""

    async def settle_and(
        self, places: Sequence[LeasedPlace], calls: Sequence[Command[Any]]
    ) -> list[Any]:
        """Settle what these places have, and make calls behind that; their answers."""


@dataclass(eq=False)
class Fetcher:
    """Fills the buffers of consumers."""

    _store: Store
    _consumers: Sequence[Intake]
    _worker: str
    _rejoin: Callable[[], Awaitable[None]]
    _wake_ups: WakeUps
    _upkeep: Alarm
    _changed: Callable[[], None]
    """A place refuses to be leased from, or does so no longer."""
    _results: ResultsAhead

    def __post_init__(self) -> None:
        """All places of the consumers, and no tokens yet."""
        self._pairs: list[Pair] = [(c, place) for c in self._consumers for place in c.places]
        self._tokens = TokenBuckets(self._store)
        self._random = random.Random()
        self._spaced = 0
        """Among so many places looks are divided."""

    async def run(self) -> None:
        """Lease until the wake-ups are stopped."""
        while not self._wake_ups.stopping:
            try:
                await self._round()
            except RqretryError as error:
                log.warning("fetching failed, trying again: %s", error)
                await asyncio.sleep(jitter(0.5, self._random))
        self._wake_ups.close()

    def add(self, consumer: Intake, place: LeasedPlace) -> None:
        """Lease from one more place."""
        self._pairs.append((consumer, place))
        self._wake_ups.interrupt()

    def remove(self, gone: LeasedPlace) -> None:
        """Lease from it no longer."""
        self._pairs = [(consumer, place) for consumer, place in self._pairs if place is not gone]

    def look_again(self, consumer: Intake) -> None:
        """Lease from all its places next: the server may have lost what it knew of them."""
        for place in consumer.places:
            place.may_hold_more()
        self._wake_ups.interrupt()

    async def _round(self) -> None:
        now = time.monotonic()
        pairs = [(c, p) for c, p in self._pairs if p.leasing.again_at <= now]
        rooms = {consumer: consumer.room() for consumer in dict(pairs)}
        open_ = [(c, p, rooms[c]) for c, p in pairs if rooms[c] > 0]
        if not open_:
            later = [p.leasing.again_at for _, p in self._pairs if p.leasing.again_at > now]
            await self._wake_ups.room(min(later) - now if later else None)
            return
        if await self._lease_likely([want for want in open_ if self._may_give(want[1])]):
            return
        few = len(open_) <= (1 if self._store.spread else _TOGETHER)
        if few and all(place.simple for _, place, _ in open_):
            await self._wait_and_lease(share(open_))
        else:
            await self._wait(open_)

    def _may_give(self, place: LeasedPlace) -> bool:
        """Whether it may hold something, by now or with the results that go with the lease."""
        return not place.empty or (place.ordered and self._results.has_results(place))

    async def _lease_likely(self, likely: list[Want]) -> bool:
        """Lease from these, as far as there are tokens; whether anything could be asked for."""
        wants = await self._allotted(share(likely)) if likely else []
        if wants:
            await self._lease_all(wants)
        return bool(wants)

    async def _lease_all(self, wants: list[Want]) -> None:
        views = [place.keys for _, place, _ in wants if place.keys.source]
        if views:  # what died since goes to the groups that consume it
            feeds = [feed_dlq_group(keys, worker=self._worker) for keys in views]
            await self._store.run_each(feeds, self._store.patience)
        commands = [self._lease(place, want) for _, place, want in wants]
        sent_at = time.monotonic()
        settling = [place for _, place, _ in wants if place.ordered]
        answers = await self._results.settle_and(settling, commands)
        unused: Counter[str] = Counter()
        for (_, place, want), leased in zip(wants, answers, strict=True):
            if place.rated:
                unused[place.keys.bucket] += want - len(getattr(leased, "ids", ()))
        await self._take_all(wants, answers, sent_at, waited=False)
        if unused:
            await self._tokens.give_back(+unused)

    async def _take_all(
        self, wants: list[Want], answers: list[Any], sent_at: float, *, waited: bool
    ) -> None:
        """Take what leases gave; waited: they were sent behind a wait, at `sent_at`."""
        seen, refused, now = [], [], time.monotonic()
        for (consumer, place, _), leased in zip(wants, answers, strict=True):
            if isinstance(leased, Exception) or leased.status == "NO_GROUP":
                refused.append((place, leased))
                continue
            clock = self._store.clock_of(place.keys.wake)
            # Not `sent_at`: the request has waited, or may have been repeated since.
            began_at = clock.ran_at(leased.now_ms, sent_at)
            if not waited:
                clock.note(leased.now_ms, sent_at)
            elif leased.ids and (began_at is None or _is_behind(place, leased, now)):
                began_at = await self._renewed(place, leased) or began_at
            if leased.errors or not all(leased.data):
                leased = await self._completed(place, leased)  # noqa: PLW2901 - the same
            self._take(consumer, place, leased, sent_at if began_at is None else began_at)
            seen.append((place, leased))
        if all(place.empty for place, _ in seen):
            await _handlers_first()
        for place, leased in seen:
            self._note(place, leased, now)
        if refused:
            await self._put_off(refused)

    async def _allotted(self, wanted: list[Want]) -> list[Want]:
        """What may be leased of what is wanted: all of it, except where a rate is the limit."""
        allotted = [want for want in wanted if not want[1].rated]
        if len(allotted) == len(wanted):
            return allotted
        now = time.monotonic()
        asking: dict[str, list[Want]] = {}
        for want in wanted:
            if want[1].rated and self._tokens_at(want[1]) <= now:
                asking.setdefault(want[1].keys.bucket, []).append(want)
            elif want[1].rated:
                want[1].refused(LIMITED, now)
        totals = {bucket: sum(room for _, _, room in wants) for bucket, wants in asking.items()}
        for bucket, tokens in (await self._tokens.take(totals)).items():
            allotted += divided(asking[bucket], tokens)
        return allotted

    def _lease(self, place: LeasedPlace, want: int) -> Command[Leased]:
        return lease(
            place.keys,
            worker=self._worker,
            want=want,
            visibility_ms=round(place.visibility_s * 1000),
            prefer=place.next_list(),
            tokens=place.rated,
            expected_ms=place.schedule.expected_again_ms(time.monotonic()),
        )

    def _take(self, consumer: Intake, place: LeasedPlace, leased: Leased, leased_at: float) -> None:
        if place.leasing.again_at:
            place.leasing.worked()
            self._changed()
        deliveries = place.leased(leased, leased_at)
        if deliveries:
            consumer.accept(deliveries)

    async def _completed(self, place: LeasedPlace, leased: Leased) -> Leased:
        """The same, with large bodies, which no lease brings, and what observers are told."""
        leased = await self._store.perform(with_large(place.keys, leased))
        if leased.errors and observer.installed is not None:
            leased = await self._explained(place, leased)
        return leased

    async def _explained(self, place: LeasedPlace, leased: Leased) -> Leased:
        """The same, with how the processes ended that messages were killed with; for observers."""
        with suppress(RqretryError):
            lease_ms = round(place.visibility_s * 1000)
            return await self._store.perform(explain_expired(place.keys, leased, lease_ms))
        return leased

    def _note(self, place: LeasedPlace, seen: Leased | Polled, now: float) -> None:
        place.schedule.note(seen, now)
        self._upkeep.due(place.schedule.soonest())

    async def _put_off(self, refused: Sequence[tuple[LeasedPlace, Leased | Exception]]) -> None:
        """Leave places alone for a while, each for its own error; what others gave is taken.

        Raises:
            StoreUnavailable: It is the one server, and not the place, that does not answer.
        """
        now = time.monotonic()
        strange = [place for place, answer in refused if isinstance(answer, Leased)]
        for place, error in refused:
            if isinstance(error, Leased):
                continue
            if isinstance(error, StoreUnavailable):
                if not self._store.spread:
                    raise error
                place.unreachable(now)
                log.warning("nothing can be leased for %s, trying again: %s", place.keys, error)
            else:
                reason = f"cannot lease for {place.keys}: {error}{await self._missing(error)}"
                place.leasing.failed(reason, now)
                log.error("%s; trying again", reason)
                self._changed()
        if strange:
            for place in strange:  # where joining does not help, it is not tried all the time
                place.leasing.failed("", now)
            await self._rejoin()

    async def _missing(self, error: Exception) -> str:
        """Which rights this user lacks, where the server refused for one."""
        if not isinstance(error, ConfigError):
            return ""
        library, namespace = (
            self._store.topology.scripts,
            self._pairs[0][1].keys.partition.namespace,
        )
        asked = denied("worker", namespace, library, cluster=self._store.spread)
        try:
            missing = await self._store.perform(asked)
        except RqretryError:
            return ""
        return f" (missing: {', '.join(missing)})" if missing else ""

    # -- waiting -----------------------------------------------------------------------------

    async def _wait_and_lease(self, wants: list[Want]) -> None:
        """Wait with the leases right behind: the server runs them when the wait ends."""
        places = [place for _, place, _ in wants]
        commands = [self._lease(place, want) for _, place, want in wants]
        sent_at = time.monotonic()
        replies = await self._wake_ups.block(
            [place.keys.wake for place in places],
            self._longest(places),
            self._covered_by(places),
            [self._store.request_for(command) for command in commands],
        )
        if replies is None:
            for place in places:
                place.may_hold_more()
            return
        await self._take_all(wants, await self._read(commands, replies[1:]), sent_at, waited=True)
        if not self._store.clock_of(places[0].keys.wake).fresh:
            places[0].may_hold_more()  # the next lease waits for nothing, and tells the time

    async def _read(self, commands: list[Command[Leased]], replies: list[Any]) -> list[Any]:
        """What was leased; what is an error is asked for again, to load it or to learn why."""
        if not any(map(is_error, replies)):
            return [command.decode(reply) for command, reply in zip(commands, replies, strict=True)]
        again = [c for c, reply in zip(commands, replies, strict=True) if is_error(reply)]
        repeated = iter(await self._store.run_each(again, self._store.patience))
        return [
            next(repeated) if is_error(reply) else command.decode(reply)
            for command, reply in zip(commands, replies, strict=True)
        ]

    async def _renewed(self, place: LeasedPlace, leased: Leased) -> float | None:
        """Renew what was leased behind a wait by a time that tells nothing; None if it is over.

        That is so where the server's time stood still in the wait, or was put forward. What counts
        is when the renewal was sent.
        """
        now = time.monotonic()
        renewal = renew(
            place.keys,
            [Receipt(id_, no) for id_, (no, _) in zip(leased.ids, leased.numbers, strict=True)],
            visibility_ms=round(place.visibility_s * 1000),
            expected_ms=place.schedule.expected_ms(now),
        )
        (verdicts,) = await self._store.run_each([renewal], self._store.patience)
        return now if not isinstance(verdicts, Exception) and set(verdicts) == {OK} else None

    async def _wait(self, open_: list[Want]) -> None:
        """Until a place is woken, is to be looked at, or may have tokens again."""
        now = time.monotonic()
        places = [place for _, place, _ in open_]
        tokens_at = min((self._tokens_at(p) for p in places if not p.empty), default=math.inf)
        watched = [p for p in places if p.empty or self._tokens_at(p) > now + _SHORT_S]
        if not watched:
            await self._wake_ups.room(tokens_at - now)
            return
        alarm = None
        if tokens_at < now + LOOK_EVERY_S:
            loop = asyncio.get_running_loop()
            alarm = loop.call_later(max(0.0, tokens_at - now), self._wake_ups.unblock)
        longest = self._longest(watched)
        look_at = min(place.schedule.looked_at + _patience(place, woken=True) for place in watched)
        wakes = [place.keys.wake for place in watched]
        try:
            woken = await self._wake_ups.any_of(wakes, longest, self._covered_by(watched))
        finally:
            if alarm is not None:
                alarm.cancel()
        if woken is None or woken:
            await self._lease_woken([w for w in open_ if woken is None or w[1].keys.wake in woken])
        if not woken or time.monotonic() >= look_at:
            await self._look_at_late(watched, woken=bool(woken))

    async def _lease_woken(self, wants: list[Want]) -> None:
        """At once: a message waits, and a round goes through all places."""
        for _, place, _ in wants:
            place.may_hold_more()
            self._tokens.ask_again(place.keys.bucket)
        await self._lease_likely([(c, place, room) for c, place, _ in wants if (room := c.room())])

    async def _look_at_late(self, watched: list[LeasedPlace], *, woken: bool) -> None:
        """Lease next from those that were not looked at for long, and may hold something."""
        now = time.monotonic()
        late = [p for p in watched if now - p.schedule.looked_at >= _patience(p, woken=woken)]
        for place in await self._look(late):
            place.may_hold_more()
            self._tokens.ask_again(place.keys.bucket)

    def _tokens_at(self, place: LeasedPlace) -> float:
        """The monotonic time before which there are no tokens for a place; past: ask."""
        return self._tokens.next_at(place.keys.bucket) if place.rated else 0.0

    def _covered_by(self, watched: Collection[LeasedPlace]) -> list[Intake]:
        """The consumers that have no other place than these, and some that are put off."""
        consumers = [*dict(self._pairs)]
        if len(watched) == len(self._pairs):
            return consumers
        now = time.monotonic()
        known = {*watched, *(p for _, p in self._pairs if p.leasing.again_at > now)}
        return [c for c in consumers if known.issuperset(c.places)]

    async def _look(self, places: list[LeasedPlace]) -> list[LeasedPlace]:
        """Look at all of them with few commands. Returns those that must be leased from to know."""
        plain = [place for place in places if place.simple]
        idle = await self._empty([p for p in plain if not p.schedule.knows_something])
        rest = [place for place in plain if place not in idle]
        if not self._store.spread and len(rest) > 1:  # a lease of one is one command, too
            for batch in batches(rest, _POLLED):
                idle |= await self._poll(batch)
        return [place for place in places if place not in idle]

    async def _empty(self, places: list[LeasedPlace]) -> set[LeasedPlace]:
        """Those of them that hold nothing; where others do, halves are looked at again."""
        if not places:
            return set()
        asking = holding(
            places,
            lambda some: something_held([place.keys for place in some]),
            1 if self._store.spread else _PROBED,
            few=_FEW,
            seconds=self._store.patience,
        )
        empty = set(places).difference(await self._store.perform(asking))
        now = time.monotonic()
        for place in empty:
            place.schedule.nothing_held(now)
        return empty

    async def _poll(self, places: Sequence[LeasedPlace]) -> set[LeasedPlace]:
        """Those of them with nothing to lease."""
        sent_at = time.monotonic()
        command = poll([place.keys for place in places])
        (looks,) = await self._store.run_each([command], self._store.patience)
        if isinstance(looks, StoreUnavailable):
            raise looks
        idle: set[LeasedPlace] = set()
        if isinstance(looks, Exception):  # one of them refuses, and leasing shows which
            return idle
        for place, seen in zip(places, looks, strict=True):
            if seen is not None and seen.ready + seen.retry == 0:
                self._note(place, seen, time.monotonic())
                self._store.clock.note(seen.now_ms, sent_at)
                idle.add(place)
        return idle

    def _longest(self, places: list[LeasedPlace]) -> float:
        if self._spaced != len(self._pairs):
            self._spaced = len(self._pairs)
            for _, place in self._pairs:
                place.schedule.look_every_s = look_every_s(place, self._spaced)
        now = time.monotonic()
        seconds = min(
            max(s.looked_at + s.look_every_s - now, 0.2 * s.look_every_s)
            for s in (place.schedule for place in places)
        )
        return jitter(seconds, self._random)


def share(likely: Sequence[Want]) -> list[Want]:
    """Divide each consumer's room among its places, so that one call does not take it twice."""
    if len(likely) == 1:
        return list(likely)
    counts = Counter(id(consumer) for consumer, _, _ in likely)
    return [
        (consumer, place, max(1, -(-room // counts[id(consumer)])))
        for consumer, place, room in likely
    ]


def _is_behind(place: LeasedPlace, leased: Leased, now: float) -> bool:
    expected_ms = place.schedule.expected_ms(now)
    return expected_ms is not None and leased.now_ms < expected_ms - _BEHIND_MS


def look_every_s(place: LeasedPlace, places: int) -> float:
    """How often a process looks at a place, of so many: less often if they are few or very many.

    A look at a few takes a command for each, and on one server a look at hundreds takes two.
    """
    few = LOOK_EVERY_S / min(places, 2) if places <= _TOGETHER else _OFTEN_S
    often = max(few, places / _LOOKS_PER_S)
    most = FEED_EVERY_S if place.keys.source else LOOK_EVERY_S
    return min(often, most, place.visibility_s)


def _patience(place: LeasedPlace, *, woken: bool) -> float:
    # At the end of a wait nothing is left to maintenance, which would look before the next end.
    return (0.85 if woken else 0.2) * place.schedule.look_every_s


async def _handlers_first() -> None:
    """Let the slots that were woken run before the next wait is put together and sent."""
    await asyncio.sleep(0)
