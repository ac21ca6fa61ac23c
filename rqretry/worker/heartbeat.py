"""Renewing leases, in a thread with a connection of its own.

A handler that blocks the event loop, or computes for minutes, must not lose its lease for that,
nor keep it longer than an attempt may take (consume_timeout). Renewal is at a third of the
visibility; what is trusted runs from the time of sending. What waits behind a blocked event loop is
given back from here.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from rqretry.protocol.command import Command, batches
from rqretry.protocol.lease import OK, release, renew
from rqretry.transport.store_sync import SyncStore
from rqretry.worker.leases import Delivery, LeasedPlace

log = logging.getLogger("rqretry")

_RENEW_AFTER = 1 / 3
"""The age, as a part of its visibility, at which a lease is renewed."""
_LOOK_EVERY = 1 / 6
"""The part of the shortest visibility after which leases are looked through again."""
_LATE_S = 2.0
"""How much later than in time the event loop ends an attempt at most, while it is not blocked."""


class Heartbeat:
    """Renews the leases of a process."""

    def __init__(
        self,
        store: SyncStore,
        places: Sequence[LeasedPlace],
        lose: Callable[[Delivery], None],
        worker: str,
        blocked: Callable[[float], Command[Any]] | None = None,
    ) -> None:
        self._store = store
        self._places = places
        self._lose = lose
        self._worker = worker
        self._blocked = blocked
        self._asked_at: float | None = None
        """Since when the event loop owes a sign of life."""
        self._overdue: set[Delivery] = set()
        self._loop = asyncio.get_running_loop()
        self._stopped, self._ended = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="rqretry-heartbeat", daemon=True)

    async def run(self) -> None:
        """Renew in the thread; ends only where the thread does."""
        self._thread.start()
        await self._ended.wait()

    def stop(self) -> None:
        """Renew no more; the thread ends by itself."""
        self._stopped.set()

    def _run(self) -> None:
        try:
            while not self._stopped.wait(self._every()):
                try:
                    self._renew_all()
                    self._look_at_loop()
                except Exception:
                    if self._loop.is_closed():  # under us: we are stopping
                        break
                    log.exception("renewing leases failed, trying again")
            self._store.close()
        finally:
            with suppress(RuntimeError):  # the event loop has closed: we are stopping
                self._loop.call_soon_threadsafe(self._ended.set)

    def _every(self) -> float:
        return min((place.visibility_s for place in list(self._places)), default=30.0) * _LOOK_EVERY

    def _look_at_loop(self) -> None:
        """Where the event loop stands still, say so in its place: the list of workers shows it."""
        if self._asked_at is None:
            self._asked_at = time.monotonic()
            self._loop.call_soon_threadsafe(self._answered)
        elif self._blocked is not None:
            self._store.run(self._blocked(time.monotonic() - self._asked_at))

    def _answered(self) -> None:
        self._asked_at = None

    def _renew_all(self) -> None:
        """Renew on all servers at once, so that one that is down delays no other's leases."""
        now, places = time.monotonic(), list(self._places)  # the event loop may add partitions
        self._overdue = {d for d in self._overdue if d in d.place.leases}
        due = [(place, batch) for place in places for batch in batches(self._due(place, now))]
        commands: list[Command[Any]] = [
            renew(
                place.keys,
                [delivery.receipt for delivery in batch],
                visibility_ms=round(place.visibility_s * 1000),
                expected_ms=place.schedule.expected_again_ms(now),
            )
            for place, batch in due
        ]
        sent_at = time.monotonic()
        # What is not answered soon is asked again in the next round: all others wait for it.
        patience = min(self._store.repeat_seconds, self._every())
        commands += [call for place in places for call in self._given_back(place, now)]
        answers = self._store.run_each(commands, patience) if commands else []
        for (_, batch), verdicts in zip(due, answers[: len(due)], strict=True):
            if isinstance(verdicts, Exception):
                log.warning("renewing leases failed, trying again: %s", verdicts)
            else:
                self._note(batch, verdicts, sent_at)

    def _due(self, place: LeasedPlace, now: float) -> list[Delivery]:
        """What to renew of a place: nothing whose attempt has had its time."""
        held = place.leases.sent_before(now - place.visibility_s * _RENEW_AFTER)
        over = {d for d in held if not d.settled and now > d.leased_at + place.longest_s}
        for delivery in over - self._overdue:
            if now > delivery.leased_at + place.longest_s + _LATE_S:
                self._overdue.add(delivery)
                log.error(
                    "message %s of %s: its handler has run for more than %g s and blocks the event"
                    " loop; its lease is not renewed",
                    delivery.id, place.keys, place.longest_s,
                )  # fmt: skip
        return [delivery for delivery in held if delivery not in over]

    def _given_back(self, place: LeasedPlace, now: float) -> Iterator[Command[list[bytes]]]:
        """Give back, uncounted, what should have started long ago."""
        for batch in batches(place.leases.take_late(now - place.visibility_s / 2)):
            log.warning("the event loop is blocked: %d messages of %s that have not started are"
                        " given back", len(batch), place.keys)  # fmt: skip
            yield release(place.keys, [d.receipt for d in batch], worker=self._worker)

    def _note(self, batch: Sequence[Delivery], verdicts: Sequence[bytes], sent_at: float) -> None:
        for delivery, verdict in zip(batch, verdicts, strict=True):
            if verdict == OK:
                delivery.sent_at = sent_at
            elif not delivery.settled:
                self._loop.call_soon_threadsafe(self._lose, delivery)
