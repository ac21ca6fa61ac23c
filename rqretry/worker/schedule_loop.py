"""Publishing the periodic messages of an app, at their slots.

Every worker of the app does it, and a slot that two of them publish is stored once. A worker that
waits for a slot sends nothing, but looks once a minute for what has changed.
"""

import asyncio
import logging
import time
from typing import Protocol

from rqretry.core.errors import RqretryError
from rqretry.protocol.command import Operation
from rqretry.transport.store import Store

log = logging.getLogger("rqretry")

LOOK_EVERY_S = 60.0
_AGAIN_S = 5.0
_SOONEST_S = 0.005
_JUMP_MS = 60_000
"""The server's time is this much ahead of what this worker's own clock says: it has jumped."""
_HOLD_S = 10.0


class Periodic(Protocol):
    """See rqretry.producer.periodic.PeriodicMessages."""

    def define(self) -> Operation[None]:
        """Store what the app declares."""

    def publish_due(self, latest_ms: int | None = None) -> Operation[tuple[int, int | None]]:
        """Publish the slots that are due; the server's time, and when the next one is due."""


class ScheduleLoop:
    """The part of a worker that publishes periodic messages."""

    def __init__(self, store: Store, messages: Periodic) -> None:
        self._store = store
        self._messages = messages
        self._defined = False
        self._looked: tuple[int, float] | None = None
        """The server's time at the last look, and the local one; None: believe the server."""

    async def run(self) -> None:
        """Publish for ever."""
        while True:
            try:
                wait_s = await self._look()
            except RqretryError as error:
                log.warning("publishing periodic messages failed, trying again: %s", error)
                wait_s = _AGAIN_S
            await asyncio.sleep(wait_s)

    async def _look(self) -> float:
        if not self._defined:
            await self._store.perform(self._messages.define())
            self._defined = True
        latest_ms = None
        if self._looked is not None:
            then_ms, at = self._looked
            latest_ms = then_ms + round((time.monotonic() - at) * 1000) + _JUMP_MS
        begun = time.monotonic()
        now_ms, next_ms = await self._store.perform(self._messages.publish_due(latest_ms))
        if latest_ms is not None and now_ms > latest_ms:
            self._looked = None
            log.warning("the server's time has jumped: periodic messages wait %g s", _HOLD_S)
            return _HOLD_S
        self._looked = now_ms, begun
        if next_ms is None:
            return LOOK_EVERY_S
        until_s = (next_ms - now_ms) / 1000 - (time.monotonic() - begun)
        return max(_SOONEST_S, min(LOOK_EVERY_S, until_s))
