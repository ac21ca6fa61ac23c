"""Renewing leases, in a thread with a connection of its own.

A handler that blocks the event loop, or computes for minutes, must not lose its lease for that.
Renewal is at a third of the visibility; what is trusted runs from the time of sending.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence

from rqretry.protocol.command import batches
from rqretry.protocol.lease import OK, renew
from rqretry.transport.store_sync import SyncStore
from rqretry.worker.leases import Delivery, LeasedPlace

log = logging.getLogger("rqretry")


class Heartbeat:
    """Renews the leases of a process."""

    def __init__(
        self, store: SyncStore, places: Sequence[LeasedPlace], lose: Callable[[Delivery], None]
    ) -> None:
        self._store = store
        self._places = places
        self._lose = lose
        self._loop = asyncio.get_running_loop()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rqretry-heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Renew no more; the thread ends by itself."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._every()):
            try:
                self._renew_all()
            except RuntimeError:  # the event loop has closed under us: we are stopping
                return
        self._store.close()

    def _every(self) -> float:
        return min((place.visibility_s for place in list(self._places)), default=30.0) / 6

    def _renew_all(self) -> None:
        """Renew on all servers at once, so that one that is down delays no other's leases."""
        now = time.monotonic()
        due = [
            (place, batch)
            for place in list(self._places)  # a copy: the event loop may add partitions meanwhile
            for batch in batches(place.leases.sent_before(now - place.visibility_s / 3))
        ]
        commands = [
            renew(
                place.keys,
                [delivery.receipt for delivery in batch],
                visibility_ms=round(place.visibility_s * 1000),
            )
            for place, batch in due
        ]
        sent_at = time.monotonic()
        # What is not answered soon is asked again in the next round: all others wait for it.
        patience = min(self._store.repeat_seconds, self._every())
        answers = self._store.run_each(commands, patience) if due else []
        for (_, batch), verdicts in zip(due, answers, strict=True):
            if isinstance(verdicts, Exception):
                log.warning("renewing leases failed, trying again: %s", verdicts)
            else:
                self._note(batch, verdicts, sent_at)

    def _note(self, batch: Sequence[Delivery], verdicts: Sequence[bytes], sent_at: float) -> None:
        for delivery, verdict in zip(batch, verdicts, strict=True):
            if verdict == OK:
                delivery.sent_at = sent_at
            elif not delivery.settled:
                self._loop.call_soon_threadsafe(self._lose, delivery)
