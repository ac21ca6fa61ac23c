"""Reporting to the server how attempts ended: batches per place, one round trip for all of them.

While one round trip is under way the next batch gathers. A settle is repeated with back-off until
it is answered or the lease is over. Where it is rejected, or there is no answer at all, the history
shows whether the result was taken the first time (settle_recovery.py).
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from rqretry.core.errors import AmbiguousResult, RqretryError, StoreUnavailable
from rqretry.core.middleware import Announcer
from rqretry.observability.observer import POSTPONED, RELEASED, SUCCESS
from rqretry.protocol.command import MAX_BATCH, Command, batches
from rqretry.protocol.lease import (
    GONE,
    LATER,
    LIMIT,
    OK,
    Failed,
    Failure,
    encode_times,
    fail,
    release,
    succeed,
)
from rqretry.transport.store import Store
from rqretry.worker.leases import Delivery, Doubt, LeasedPlace, Release
from rqretry.worker.settle_events import OutcomeReporter
from rqretry.worker.settle_recovery import SLACK_MS, Recovered, recover_results
from rqretry.worker.wakeups import WakeUps

log = logging.getLogger("rqretry")

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
_NOTHING_KNOWN = Recovered({}, whole=False)
T = TypeVar("T")


class Settlement(NamedTuple):
    """One call to settle a batch, and what to do about its answer."""

    command: Command[Any]
    answered: Callable[[Any], None]
    again: Callable[[], None]
    """The call failed: put back what is still ours."""


class Settler:
    """Settles for all consumers of a process. It alone changes the outboxes of places."""

    def __init__(self, store: Store, announcer: Announcer, worker: str, wake_ups: WakeUps) -> None:
        self._store = store
        self._report = OutcomeReporter(announcer, worker, store)
        self._worker = worker
        self._wake_ups = wake_ups
        self._dirty: dict[LeasedPlace, None] = {}
        self._failing: set[LeasedPlace] = set()
        """Their server did not answer the last time."""
        self._wanted = asyncio.Event()
        self._busy = 0
        self.failures = 0
        """How many attempts have failed."""
        self.done: Counter[tuple[str, str]] = Counter()
        """How many messages are done, committed or dead, by topic and group."""
        self._retrying = False

    @property
    def unsettled(self) -> Collection[LeasedPlace]:
        """Places with results that their servers do not know of yet."""
        return self._dirty

    def succeed(self, delivery: Delivery) -> None:
        """The attempt succeeded."""
        place = delivery.place
        place.outbox.succeeded.append(delivery)
        if place not in self._dirty:
            self._want(place)

    def fail(self, delivery: Delivery, failure: Failure) -> None:
        """The attempt failed."""
        place = delivery.place
        place.outbox.failed.append((delivery, failure))
        if place not in self._dirty:
            self._want(place)

    def release(self, delivery: Delivery, delay_ms: int | str) -> None:
        """Give the message back, uncounted: at once, or after a delay."""
        self._release(Release(delivery, delay_ms))

    def postpone(self, delivery: Delivery, delay_ms: int, most: int, limit: Failure) -> None:
        """Give it back after a delay; postponed more than `most` times, it fails with `limit`."""
        self._release(Release(delivery, delay_ms, most, limit))

    def _release(self, item: Release) -> None:
        item.delivery.place.outbox.released.append(item)
        self._want(item.delivery.place)

    async def run(self) -> None:
        """Settle what comes, for ever; where a server fails, beside the rest."""
        async with asyncio.TaskGroup() as beside:
            while True:
                await self._wanted.wait()
                if not (self._retrying or self._failing.isdisjoint(self._dirty)):
                    self._retrying = True
                    beside.create_task(self._retry(), name="settler of servers that fail")
                self._wanted.clear()
                await self._flush(self._take(failing=False))

    async def _retry(self) -> None:
        """Try again to settle where a server fails, as long as there is something to."""
        pause = _FIRST_PAUSE_S
        try:
            while places := self._take(failing=True):
                if await self._flush(places):
                    shortest = min(place.visibility_s for place in places)
                    await asyncio.sleep(min(pause, max(_FIRST_PAUSE_S, shortest / 10)))
                    pause = min(2 * pause, _LONGEST_PAUSE_S)
                else:
                    pause = _FIRST_PAUSE_S
        finally:
            self._retrying = False
            if self._dirty:  # it came while its server recovered: `run` has passed it over
                self._wanted.set()

    def _take(self, *, failing: bool) -> list[LeasedPlace]:
        taken = [place for place in self._dirty if (place in self._failing) is failing]
        for place in taken:
            del self._dirty[place]
        return taken

    async def finish(self, until: float) -> None:
        """Settle what is left, until a monotonic time at the latest."""
        while (self._dirty or self._busy) and time.monotonic() < until:  # noqa: ASYNC110 - at the end
            await asyncio.sleep(0.002)
        for place in self._dirty:
            self._conclude(place.outbox.take_doubts(), _NOTHING_KNOWN)
        self._report.finish()

    def _want(self, place: LeasedPlace) -> None:
        self._dirty[place] = None
        self._wanted.set()

    async def flush(self) -> None:
        """Settle what is there now, in one round trip."""
        self._wanted.clear()
        await self._flush([*self._take(failing=False), *self._take(failing=True)])

    def has_results(self, place: LeasedPlace) -> bool:
        """Whether a place has results that its server can be sent now."""
        return place in self._dirty and place not in self._failing

    async def settle_and(
        self, places: Sequence[LeasedPlace], calls: Sequence[Command[Any]]
    ) -> list[Any]:
        """Settle what these places have, and make calls behind that, in one write."""
        ready = [place for place in places if self.has_results(place)]
        if not ready:
            return await self._store.run_each(calls, self._store.patience)
        for place in ready:
            del self._dirty[place]
        answers: list[Any] = []
        await self._flush(ready, calls, answers)
        return answers

    async def _flush(
        self,
        places: Sequence[LeasedPlace],
        calls: Sequence[Command[Any]] = (),
        answers: list[Any] | None = None,
    ) -> bool:
        """Settle what these places have, then `calls`; whether some failed and is sent again."""
        pairs = [(place, made) for place in places for made in self._settlements(place)]
        if not (pairs or calls or any(place.outbox.doubts for place in places)):
            return False
        self._busy += 1
        try:
            commands = [*(made.command for _, made in pairs), *calls]
            results = await self._store.run_each(commands, self._store.patience) if commands else []
            if answers is not None:
                answers += results[len(pairs) :]
            self._failing.difference_update(places)
            settled = zip(pairs, results[: len(pairs)], strict=True)
            errors = [self._answered(*pair, result) for pair, result in settled]
            in_doubt = [p for p in places if p.outbox.doubts and p not in self._failing]
            errors += [await self._recover(place) for place in in_doubt]
            if any(errors):
                log.warning("settling failed, trying again: %s", next(filter(None, errors)))
            self._wake_ups.settled()
            return any(errors)
        finally:
            self._busy -= 1

    def _answered(self, place: LeasedPlace, made: Settlement, result: Any) -> Exception | None:
        """A call was answered, or is to be made again; why it failed."""
        if isinstance(result, Exception):
            made.again()
            self._failing.add(place)
            if not isinstance(result, (StoreUnavailable, AmbiguousResult)):
                place.settling.failed(f"cannot settle for {place.keys}: {result}", time.monotonic())
            return result
        if place.settling.again_at:
            place.settling.worked()
        made.answered(result)
        return None

    # -- results in doubt ------------------------------------------------------------------------

    async def _recover(self, place: LeasedPlace) -> Exception | None:
        """Ask the history what became of results that are in doubt; why it could not be asked."""
        doubts = place.outbox.take_doubts()
        if not doubts:  # the other task was quicker, while this one asked about another place
            return None
        now = time.monotonic()
        since = min(doubt.reported_at for doubt in doubts)
        clock = self._store.clock_of(place.keys.partition.meta)
        since_ms = clock.now_ms() - int((now - since) * 1000) - SLACK_MS
        wanted = {doubt.result for doubt in doubts}
        asked = recover_results(place.keys, wanted, self._worker, since_ms)
        try:
            found = await self._store.perform(asked)
        except (StoreUnavailable, AmbiguousResult) as error:
            place.outbox.doubts += doubts
            self._failing.add(place)
            self._want(place)
            return error
        except RqretryError as error:  # it may not be read
            log.warning("what became of results is not known: %s", error)
            found = _NOTHING_KNOWN
        except asyncio.CancelledError:  # the end, and nobody will ask again
            self._conclude(doubts, _NOTHING_KNOWN)
            raise
        self._conclude(doubts, found)
        return None

    def _conclude(self, doubts: Sequence[Doubt], found: Recovered) -> None:
        for doubt in doubts:
            delivery, failure = doubt.delivery, doubt.failure
            taken = found.taken.get(doubt.result)
            if taken is None and doubt.gone and not found.whole:
                taken = Failed("GONE")
            if taken is None:
                self._rejected(delivery)
            elif failure is not None:
                self._report.failed(delivery.place.keys, [(delivery, failure, taken)])
            elif delivery.watch is not None:
                delivery.watch.settled(SUCCESS)

    def _rejected(self, delivery: Delivery) -> None:
        self._report.rejected(delivery)

    def _doubt(
        self, delivery: Delivery, failure: Failure | None, sent_at: float, *, gone: bool
    ) -> None:
        """A result was rejected, or not answered before its lease was over: the history knows."""
        place = delivery.place
        place.leases.end(delivery)
        reported_at = delivery.reported_at or sent_at
        place.outbox.doubts.append(Doubt(delivery, failure, reported_at, gone))

    def _still_ours(self, delivery: Delivery, failure: Failure | None, sent_at: float) -> bool:
        """Whether to report it again."""
        delivery.reported_at = delivery.reported_at or sent_at
        ours = _is_ours(delivery)
        if not ours:
            self._doubt(delivery, failure, sent_at, gone=False)
            self._want(delivery.place)
        return ours

    # -- batches ---------------------------------------------------------------------------------

    def _settlements(self, place: LeasedPlace) -> Iterator[Settlement]:
        succeeded, failed, released = place.outbox.take()
        for done in _batched(succeeded):
            yield self._succeed_batch(place, done)
        for lost in _batched(failed):
            yield self._fail_batch(place, lost)
        by_limit: dict[int, list[Release]] = {}
        for item in released:
            by_limit.setdefault(item.most, []).append(item)
        for most, items in by_limit.items():
            for batch in _batched(items):
                yield self._release_batch(place, batch, most)

    def _succeed_batch(self, place: LeasedPlace, batch: Sequence[Delivery]) -> Settlement:
        sent_at = time.monotonic()

        def answered(verdicts: list[bytes]) -> None:
            pairs = zip(batch, verdicts, strict=True)
            done = [delivery for delivery, verdict in pairs if verdict == OK]
            place.leases.end(*done)
            self.done[place.topic, place.keys.group] += len(done)
            for delivery in done:
                if delivery.watch is not None:
                    delivery.watch.settled(SUCCESS)
            if len(done) < len(batch):
                self._not_done(batch, verdicts, sent_at)

        def again() -> None:
            for delivery in batch:
                if self._still_ours(delivery, None, sent_at):
                    self.succeed(delivery)

        receipts = [(d.id, d.lease_no) for d in batch]
        command = succeed(place.keys, receipts, worker=self._worker, times=_times(batch))
        return Settlement(command, answered, again)

    def _not_done(
        self, batch: Sequence[Delivery], verdicts: Sequence[bytes], sent_at: float
    ) -> None:
        for delivery, verdict in zip(batch, verdicts, strict=True):
            if verdict == LATER:
                self.succeed(delivery)
            elif verdict != OK:
                self._doubt(delivery, None, sent_at, gone=verdict == GONE)

    def _fail_batch(
        self, place: LeasedPlace, batch: Sequence[tuple[Delivery, Failure]]
    ) -> Settlement:
        tracebacks, sent_at = place.tracebacks.take(), time.monotonic()

        def answered(results: list[Failed]) -> None:
            place.leases.end(*[delivery for delivery, _ in batch])
            self._report.learn(tracebacks)
            taken = []
            for (delivery, failure), result in zip(batch, results, strict=True):
                if result.verdict == "OK":
                    taken.append((delivery, failure, result))
                else:
                    gone = result.verdict == "GONE"
                    self._doubt(delivery, failure, sent_at, gone=gone)
            self.failures += len(taken)
            self.done[place.topic, place.keys.group] += self._report.failed(place.keys, taken)

        def again() -> None:
            place.tracebacks.put_back(tracebacks)
            for delivery, failure in batch:
                if self._still_ours(delivery, failure, sent_at):
                    self.fail(delivery, failure)

        failures = [failure for _, failure in batch]
        times = _times([delivery for delivery, _ in batch])
        command = fail(
            place.keys, failures, worker=self._worker, tracebacks=tracebacks, times=times
        )
        return Settlement(command, answered, again)

    def _release_batch(self, place: LeasedPlace, batch: Sequence[Release], most: int) -> Settlement:
        def answered(verdicts: list[bytes]) -> None:
            for (delivery, delay_ms, _, limit), verdict in zip(batch, verdicts, strict=True):
                if verdict == LIMIT and limit is not None:
                    self.fail(delivery, limit)
                    continue
                place.leases.end(delivery)
                if delivery.watch is not None and limit is None:
                    delivery.watch.settled(RELEASED)
                elif delivery.watch is not None:
                    now_ms = place.schedule.expected_ms(time.monotonic())
                    due_ms = None if now_ms is None else now_ms + int(delay_ms or 0)
                    delivery.watch.settled(POSTPONED, due_ms=due_ms)

        def again() -> None:
            for item in batch:
                if _is_ours(item.delivery):
                    self._release(item)
                else:
                    place.leases.end(item.delivery)
                    self._rejected(item.delivery)

        command = release(
            place.keys,
            [item.delivery.receipt for item in batch],
            worker=self._worker,
            delays_ms=[item.delay_ms for item in batch],
            max_postpones=most,
            times=_times([item.delivery for item in batch]) if most else b"",
        )
        return Settlement(command, answered, again)


def _batched(items: list[T]) -> Iterable[Sequence[T]]:
    """As few calls as will do; mostly one."""
    if len(items) > MAX_BATCH:
        return batches(items)
    return (items,) if items else ()


def _times(deliveries: Sequence[Delivery]) -> bytes:
    """When the handlers ran."""
    seconds = [0.0] * (2 * len(deliveries))
    seconds[::2] = [one.started_at - one.leased_at for one in deliveries]
    seconds[1::2] = [one.ended_at - one.started_at for one in deliveries]
    return encode_times(seconds)


def _is_ours(delivery: Delivery) -> bool:
    """Whether its lease lasts for sure."""
    return time.monotonic() < delivery.sent_at + delivery.place.visibility_s
