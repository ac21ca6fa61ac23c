"""Telling the server how attempts ended: batches per source, one round trip for all of them.

While one round trip is under way the next batch gathers. A settle is repeated with back-off until
it is answered or the lease is over; GONE after a repeat means that it was done the first time.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from rqretry.command import Command, batches
from rqretry.commands.consuming import GONE, LIMIT, OK, Failed, Failure, fail, release, succeed
from rqretry.failures import read_line
from rqretry.hooks import Announcer, Event
from rqretry.logs import about
from rqretry.observing import (
    DEAD_LETTER,
    FAILURE,
    POSTPONED,
    RELEASED,
    STALE,
    SUCCESS,
    Attempt,
)
from rqretry.runtime.delivery import Delivery, Source
from rqretry.store import Store

log = logging.getLogger("rqretry")


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
        self._announcer = announcer
        self._worker = worker
        self._dirty: dict[Source, None] = {}
        self._sick: set[Source] = set()
        """Their server did not answer the last time."""
        self._wanted = asyncio.Event()
        self._busy = 0
        self._nursing = False
        self._postpones: dict[Delivery, tuple[int, Failure]] = {}
        self.on_settled: Callable[[], None] = lambda: None
        """Called after each round trip: there is room again for those who waited for it."""
        self.stale = 0
        """Results that came after their lease was over."""

    def succeed(self, delivery: Delivery) -> None:
        """The attempt succeeded."""
        delivery.source.succeeded.append(delivery)
        self._want(delivery.source)

    def fail(self, delivery: Delivery, failure: Failure) -> None:
        """The attempt failed."""
        delivery.source.failed.append((delivery, failure))
        self._want(delivery.source)

    def release(self, delivery: Delivery, delay_ms: int | str) -> None:
        """Give the message back, uncounted: at once, or after a delay."""
        delivery.source.released.append((delivery, delay_ms))
        self._want(delivery.source)

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
            while sources := self._take(sick=True):
                await self._flush(sources)
        finally:
            self._nursing = False
            if self._dirty:  # it came while its server got well: `run` has passed it over
                self._wanted.set()

    def _take(self, *, sick: bool) -> list[Source]:
        taken = [source for source in self._dirty if (source in self._sick) is sick]
        for source in taken:
            del self._dirty[source]
        return taken

    async def finish(self, until: float) -> None:
        """Settle what is left, until a monotonic time at the latest."""
        while (self._dirty or self._busy) and time.monotonic() < until:  # noqa: ASYNC110 - at the end
            await asyncio.sleep(0.002)

    def _want(self, source: Source) -> None:
        if source not in self._dirty:
            self._dirty[source] = None
            self._wanted.set()

    async def flush(self) -> None:
        """Settle what is there now, in one round trip."""
        self._wanted.clear()
        await self._flush([*self._take(sick=False), *self._take(sick=True)])

    async def _flush(self, sources: Sequence[Source]) -> None:
        pairs = [(source, made) for source in sources for made in self._settlements(source)]
        if not pairs:
            return
        self._busy += 1
        try:
            results = await self._store.run_each(
                [made.command for _, made in pairs], self._store.patience
            )
            self._sick.difference_update(sources)
            errors = [
                self._tell(*pair, result) for pair, result in zip(pairs, results, strict=True)
            ]
            if any(errors):
                log.warning("settling failed, trying again: %s", next(filter(None, errors)))
                await asyncio.sleep(0.1)
            self.on_settled()
        finally:
            self._busy -= 1

    def _tell(self, source: Source, made: Settlement, result: Any) -> Exception | None:
        """A call was answered, or is to be made again; why it failed."""
        if isinstance(result, Exception):
            made.again()
            self._sick.add(source)
            return result
        made.answered(result)
        return None

    def _settlements(self, source: Source) -> Iterator[Settlement]:
        done, source.succeeded = source.succeeded, []
        failed, source.failed = source.failed, []
        released, source.released = source.released, []
        yield from (self._succeed_batch(source, batch) for batch in batches(done))
        yield from (self._fail_batch(source, batch) for batch in batches(failed))
        by_limit: dict[int, list[tuple[Delivery, int | str]]] = {}
        for item in released:
            most = self._postpones[item[0]][0] if item[0] in self._postpones else 0
            by_limit.setdefault(most, []).append(item)
        for most, items in by_limit.items():
            yield from (self._release_batch(source, batch, most) for batch in batches(items))

    def _succeed_batch(self, source: Source, batch: Sequence[Delivery]) -> Settlement:
        leases = source.leases

        def answered(verdicts: list[bytes]) -> None:
            for delivery, verdict in zip(batch, verdicts, strict=True):
                if verdict == OK and leases.get(delivery.id) is delivery:  # the hot path
                    del leases[delivery.id]
                else:
                    self._over(source, delivery, late=verdict not in (OK, GONE))
                if delivery.watch is not None:
                    delivery.watch.settled(SUCCESS)

        def again() -> None:
            for delivery in self._still_ours(source, batch):
                self.succeed(delivery)

        command = succeed(source.keys, [(d.id, d.lease_no) for d in batch], worker=self._worker)
        return Settlement(command, answered, again)

    def _fail_batch(self, source: Source, batch: Sequence[tuple[Delivery, Failure]]) -> Settlement:
        tracebacks, source.tracebacks = source.tracebacks, {}
        leases = source.leases

        def answered(results: list[Failed]) -> None:
            source.told.update(tracebacks)
            heard = log.isEnabledFor(logging.DEBUG) or self._announcer.wants("failure")
            for (delivery, failure), result in zip(batch, results, strict=True):
                if result.verdict == "OK" and leases.get(delivery.id) is delivery:  # the hot path
                    del leases[delivery.id]
                else:
                    self._over(source, delivery, late=result.verdict == "STALE")
                if delivery.watch is not None:
                    _tell(delivery.watch, failure, result)
                if result.dead or (heard and result.verdict == "OK"):
                    self._announce(source, failure, result)

        def again() -> None:
            source.tracebacks = {**tracebacks, **source.tracebacks}
            ours = set(self._still_ours(source, [delivery for delivery, _ in batch]))
            for delivery, failure in batch:
                if delivery in ours:
                    self.fail(delivery, failure)

        failures = [failure for _, failure in batch]
        command = fail(source.keys, failures, worker=self._worker, tracebacks=tracebacks)
        return Settlement(command, answered, again)

    def _release_batch(
        self, source: Source, batch: Sequence[tuple[Delivery, int | str]], most: int
    ) -> Settlement:
        def answered(verdicts: list[bytes]) -> None:
            for (delivery, _), verdict in zip(batch, verdicts, strict=True):
                _, limit = self._postpones.pop(delivery, (0, None))
                if verdict == LIMIT and limit is not None:
                    self.fail(delivery, limit)
                else:
                    self._over(source, delivery, late=False)
                    if delivery.watch is not None:
                        delivery.watch.settled(RELEASED if limit is None else POSTPONED)

        def again() -> None:
            ours = set(self._still_ours(source, [delivery for delivery, _ in batch]))
            for delivery, delay_ms in batch:
                if delivery in ours:
                    self.release(delivery, delay_ms)

        command = release(
            source.keys,
            [delivery.receipt for delivery, _ in batch],
            worker=self._worker,
            delays_ms=[delay_ms for _, delay_ms in batch],
            max_postpones=most,
        )
        return Settlement(command, answered, again)

    def _over(self, source: Source, delivery: Delivery, *, late: bool) -> None:
        if source.leases.get(delivery.id) is delivery:
            del source.leases[delivery.id]
        if late:
            self.stale += 1
            if delivery.watch is not None:
                delivery.watch.settled(STALE)
            log.warning(
                "a result was refused: the lease of message %s, attempt %d, was over",
                delivery.id, delivery.attempt,
                extra=about(delivery.id, source.topic, source.keys.group, delivery.attempt),
            )  # fmt: skip

    def _announce(self, source: Source, failure: Failure, result: Failed) -> None:
        if result.dead or log.isEnabledFor(logging.DEBUG):
            _log_failure(source, failure, result)
        buried = result.dead and not source.keys.source
        for name in ("failure", "dead_letter") if buried else ("failure",):
            if self._announcer.wants(name):
                self._announcer.post(_event(name, self._worker, source, failure, result))

    def _still_ours(self, source: Source, batch: Sequence[Delivery]) -> list[Delivery]:
        now, ours = time.monotonic(), []
        for delivery in batch:
            if now < delivery.sent_at + source.visibility_s:
                ours.append(delivery)
            else:
                self._over(source, delivery, late=True)
        return ours


def _tell(watch: Attempt, failure: Failure, result: Failed) -> None:
    """What became of a failed attempt; GONE is a repeated call that was done the first time."""
    if result.dead:
        watch.settled(DEAD_LETTER, record=failure.record)
    else:
        due_ms = result.due_ms or None
        watch.settled(FAILURE, record=failure.record, level=result.level, due_ms=due_ms)


def _log_failure(source: Source, failure: Failure, result: Failed) -> None:
    id_, topic, group = failure.receipt.id, source.topic, source.keys.group
    if result.dead:
        log.warning(
            "%s: message %s of %s, group %s, after %d %s: %s",
            "dropped" if source.keys.source else "dead letter", id_, topic, group, result.attempt,
            "delivery" if result.attempt == 1 else "deliveries", _reason(failure, result),
            extra=about(id_, topic, group, result.attempt),
        )  # fmt: skip
    else:
        log.debug(
            "message %s of %s, group %s, failed at attempt %d: %s",
            id_, topic, group, result.attempt, _reason(failure, result),
            extra=about(id_, topic, group, result.attempt),
        )  # fmt: skip


def _reason(failure: Failure, result: Failed) -> str:
    """What the handler raised or said."""
    error = read_line(f"{result.attempt} 0 {failure.record}")
    said = ": ".join(filter(None, (error.type, error.message))) if error else ""
    return said or failure.cause


def _event(name: str, worker: str, source: Source, failure: Failure, result: Failed) -> Event:
    return Event(
        name,
        worker,
        source.keys.group,
        source.topic,
        failure.receipt.id,
        result.attempt,
        _reason(failure, result),
        None if result.dead else result.due_ms,
    )
