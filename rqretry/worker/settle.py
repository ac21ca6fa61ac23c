"""Telling the server how attempts ended: batches per place, one round trip for all of them.

While one round trip is under way the next batch gathers. A settle is repeated with back-off until
it is answered or the lease is over. Where it is refused, or there is no answer at all, the history
tells whether the result was taken the first time (recollecting.py).
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from rqretry.core.errors import AmbiguousResult, RqretryError, StoreUnavailable
from rqretry.core.middleware import Announcer
from rqretry.observability.observer import POSTPONED, RELEASED, SUCCESS
from rqretry.protocol.command import Command, batches
from rqretry.protocol.lease import GONE, LIMIT, OK, Failed, Failure, fail, release, succeed
from rqretry.transport.store import Store
from rqretry.worker.leases import Delivery, Place
from rqretry.worker.settle_events import Herald
from rqretry.worker.settle_recovery import SLACK_MS, Doubt, Recollection, recollect

log = logging.getLogger("rqretry")

_NOTHING_KNOWN = Recollection({}, whole=False)


class Settlement(NamedTuple):
    """One call to settle a batch, and what to do about its answer."""

    command: Command[Any]
    answered: Callable[[Any], None]
    again: Callable[[], None]
    """The call failed: put back what is still ours."""


class Settler:
    """Settles for all consumers of a process."""

    def __init__(self, store: Store, announcer: Announcer, worker: str) -> None:
        self._store = store
        self._herald = Herald(announcer, worker)
        self._worker = worker
        self._dirty: dict[Place, None] = {}
        self._sick: set[Place] = set()
        """Their server did not answer the last time."""
        self._wanted = asyncio.Event()
        self._busy = 0
        self._nursing = False
        self._postpones: dict[Delivery, tuple[int, Failure]] = {}
        self.on_settled: Callable[[], None] = lambda: None
        """Called after each round trip: there is room again for those who waited for it."""

    def succeed(self, delivery: Delivery) -> None:
        """The attempt succeeded."""
        delivery.place.succeeded.append(delivery)
        self._want(delivery.place)

    def fail(self, delivery: Delivery, failure: Failure) -> None:
        """The attempt failed."""
        delivery.place.failed.append((delivery, failure))
        self._want(delivery.place)

    def release(self, delivery: Delivery, delay_ms: int | str) -> None:
        """Give the message back, uncounted: at once, or after a delay."""
        delivery.place.released.append((delivery, delay_ms))
        self._want(delivery.place)

    def postpone(self, delivery: Delivery, delay_ms: int, most: int, limit: Failure) -> None:
        """Give it back after a delay; postponed more than `most` times, it fails with `limit`."""
        self._postpones[delivery] = (most, limit)
        self.release(delivery, delay_ms)

    async def run(self) -> None:
        """Settle what comes, for ever; where a server is in trouble, beside the rest."""
        async with asyncio.TaskGroup() as beside:
            while True:
                await self._wanted.wait()
                if not (self._nursing or self._sick.isdisjoint(self._dirty)):
                    self._nursing = True
                    beside.create_task(self._nurse(), name="settler of servers in trouble")
                self._wanted.clear()
                await self._flush(self._take(sick=False))

    async def _nurse(self) -> None:
        """Try again to settle where a server is in trouble, as long as there is something to."""
        try:
            while places := self._take(sick=True):
                await self._flush(places)
        finally:
            self._nursing = False
            if self._dirty:  # it came while its server got well: `run` has passed it over
                self._wanted.set()

    def _take(self, *, sick: bool) -> list[Place]:
        taken = [place for place in self._dirty if (place in self._sick) is sick]
        for place in taken:
            del self._dirty[place]
        return taken

    async def finish(self, until: float) -> None:
        """Settle what is left, until a monotonic time at the latest."""
        while (self._dirty or self._busy) and time.monotonic() < until:  # noqa: ASYNC110 - at the end
            await asyncio.sleep(0.002)
        for place in self._dirty:
            doubts, place.doubts = place.doubts, []
            self._conclude(place, doubts, _NOTHING_KNOWN)

    def _want(self, place: Place) -> None:
        if place not in self._dirty:
            self._dirty[place] = None
            self._wanted.set()

    async def flush(self) -> None:
        """Settle what is there now, in one round trip."""
        self._wanted.clear()
        await self._flush([*self._take(sick=False), *self._take(sick=True)])

    async def _flush(self, places: Sequence[Place]) -> None:
        pairs = [(place, made) for place in places for made in self._settlements(place)]
        if not (pairs or any(place.doubts for place in places)):
            return
        self._busy += 1
        try:
            commands = [made.command for _, made in pairs]
            results = await self._store.run_each(commands, self._store.patience) if pairs else []
            self._sick.difference_update(places)
            errors = [
                self._tell(*pair, result) for pair, result in zip(pairs, results, strict=True)
            ]
            in_doubt = [s for s in places if s.doubts and s not in self._sick]
            errors += [await self._recollect(place) for place in in_doubt]
            if any(errors):
                log.warning("settling failed, trying again: %s", next(filter(None, errors)))
                await asyncio.sleep(0.1)
            self.on_settled()
        finally:
            self._busy -= 1

    async def _recollect(self, place: Place) -> Exception | None:
        """Ask the history what became of results that are in doubt; why it could not be asked."""
        doubts, place.doubts = place.doubts, []
        now = time.monotonic()
        since = min(doubt.told_at for doubt in doubts)
        clock = self._store.clock_of(place.keys.partition.meta)
        since_ms = clock.now_ms() - int((now - since) * 1000) - SLACK_MS
        asked = recollect(place.keys, doubts, self._worker, since_ms)
        try:
            found = await self._store.perform(asked)
        except (StoreUnavailable, AmbiguousResult) as error:
            place.doubts += doubts
            self._sick.add(place)
            self._want(place)
            return error
        except RqretryError as error:  # it may not be read
            log.warning("what became of results is not known: %s", error)
            found = _NOTHING_KNOWN
        except asyncio.CancelledError:  # the end, and nobody will ask again
            self._conclude(place, doubts, _NOTHING_KNOWN)
            raise
        self._conclude(place, doubts, found)
        return None

    def _conclude(self, place: Place, doubts: Sequence[Doubt], found: Recollection) -> None:
        curious = self._herald.curious
        for doubt in doubts:
            delivery, failure = doubt.delivery, doubt.failure
            taken = found.taken.get(doubt.result)
            if taken is None and doubt.gone and not found.whole:
                taken = Failed("GONE")
            if taken is None:
                self._herald.refused(place, delivery)
            elif failure is None:
                self._herald.succeeded(delivery)
            else:
                self._herald.failed(place, delivery, failure, taken, curious=curious)

    def _tell(self, place: Place, made: Settlement, result: Any) -> Exception | None:
        """A call was answered, or is to be made again; why it failed."""
        if isinstance(result, Exception):
            made.again()
            self._sick.add(place)
            return result
        made.answered(result)
        return None

    def _settlements(self, place: Place) -> Iterator[Settlement]:
        done, place.succeeded = place.succeeded, []
        failed, place.failed = place.failed, []
        released, place.released = place.released, []
        yield from (self._succeed_batch(place, batch) for batch in batches(done))
        yield from (self._fail_batch(place, batch) for batch in batches(failed))
        by_limit: dict[int, list[tuple[Delivery, int | str]]] = {}
        for item in released:
            most = self._postpones[item[0]][0] if item[0] in self._postpones else 0
            by_limit.setdefault(most, []).append(item)
        for most, items in by_limit.items():
            yield from (self._release_batch(place, batch, most) for batch in batches(items))

    def _succeed_batch(self, place: Place, batch: Sequence[Delivery]) -> Settlement:
        leases, told_at = place.leases, time.monotonic()

        def answered(verdicts: list[bytes]) -> None:
            for delivery, verdict in zip(batch, verdicts, strict=True):
                if leases.get(delivery.id) is delivery:  # it may be ours again, anew
                    del leases[delivery.id]
                if verdict != OK:
                    self._doubt(place, delivery, None, told_at, gone=verdict == GONE)
                elif delivery.watch is not None:
                    delivery.watch.settled(SUCCESS)

        def again() -> None:
            for delivery in batch:
                if self._still_ours(place, delivery, None, told_at):
                    self.succeed(delivery)

        command = succeed(place.keys, [(d.id, d.lease_no) for d in batch], worker=self._worker)
        return Settlement(command, answered, again)

    def _fail_batch(self, place: Place, batch: Sequence[tuple[Delivery, Failure]]) -> Settlement:
        tracebacks, place.tracebacks = place.tracebacks, {}
        leases, told_at = place.leases, time.monotonic()

        def answered(results: list[Failed]) -> None:
            place.told.update(tracebacks)
            curious = self._herald.curious
            for (delivery, failure), result in zip(batch, results, strict=True):
                if leases.get(delivery.id) is delivery:  # it may be ours again, anew
                    del leases[delivery.id]
                if result.verdict != "OK":
                    gone = result.verdict == "GONE"
                    self._doubt(place, delivery, failure, told_at, gone=gone)
                elif curious or result.dead or delivery.watch is not None:
                    self._herald.failed(place, delivery, failure, result, curious=curious)

        def again() -> None:
            place.tracebacks = {**tracebacks, **place.tracebacks}
            for delivery, failure in batch:
                if self._still_ours(place, delivery, failure, told_at):
                    self.fail(delivery, failure)

        failures = [failure for _, failure in batch]
        command = fail(place.keys, failures, worker=self._worker, tracebacks=tracebacks)
        return Settlement(command, answered, again)

    def _release_batch(
        self, place: Place, batch: Sequence[tuple[Delivery, int | str]], most: int
    ) -> Settlement:
        def answered(verdicts: list[bytes]) -> None:
            for (delivery, _), verdict in zip(batch, verdicts, strict=True):
                _, limit = self._postpones.pop(delivery, (0, None))
                if verdict == LIMIT and limit is not None:
                    self.fail(delivery, limit)
                else:
                    _forget(place, delivery)
                    if delivery.watch is not None:
                        delivery.watch.settled(RELEASED if limit is None else POSTPONED)

        def again() -> None:
            for delivery, delay_ms in batch:
                if _is_ours(place, delivery):
                    self.release(delivery, delay_ms)
                else:
                    _forget(place, delivery)
                    self._herald.refused(place, delivery)

        command = release(
            place.keys,
            [delivery.receipt for delivery, _ in batch],
            worker=self._worker,
            delays_ms=[delay_ms for _, delay_ms in batch],
            max_postpones=most,
        )
        return Settlement(command, answered, again)

    def _doubt(
        self,
        place: Place,
        delivery: Delivery,
        failure: Failure | None,
        told_at: float,
        *,
        gone: bool,
    ) -> None:
        """A result was refused, or not answered before its lease was over: the history knows."""
        _forget(place, delivery)
        place.doubts.append(Doubt(delivery, failure, delivery.told_at or told_at, gone))

    def _still_ours(
        self, place: Place, delivery: Delivery, failure: Failure | None, told_at: float
    ) -> bool:
        """Whether to tell it again."""
        delivery.told_at = delivery.told_at or told_at
        ours = _is_ours(place, delivery)
        if not ours:
            self._doubt(place, delivery, failure, told_at, gone=False)
            self._want(place)
        return ours


def _is_ours(place: Place, delivery: Delivery) -> bool:
    """Whether its lease lasts for sure."""
    return time.monotonic() < delivery.sent_at + place.visibility_s


def _forget(place: Place, delivery: Delivery) -> None:
    """The lease is over; the message may be ours again, under another one."""
    if place.leases.get(delivery.id) is delivery:
        del place.leases[delivery.id]
