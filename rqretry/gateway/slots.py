"""Of what the calls of one gateway process need at once, however many there are."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from rqretry.gateway.codes import Code, Refused

MOST_CALLS = 256
"""Calls that are worked on at the same time; each may have a connection to Redis."""
_PATIENCE_S = 2.0
"""For so long a call waits for one of the others to end; clients wait 3 s."""
_BACKGROUND: set[asyncio.Task[None]] = set()


class Slots:
    """One for each call that is worked on; an async context manager."""

    def __init__(self, most: int = MOST_CALLS) -> None:
        self._most = most
        self._free = asyncio.Semaphore(most)

    async def __aenter__(self) -> None:
        """Wait for a free one. Raises Refused if there is none in time."""
        if not self._free.locked():
            await self._free.acquire()  # at once, and without a timer
            return
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._free.acquire()
        except TimeoutError:
            raise Refused(
                Code.TOO_MANY_REQUESTS, f"{self._most} calls are being answered: try again later"
            ) from None

    async def __aexit__(self, *_: object) -> None:
        self._free.release()

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it in a slot of its own, though whoever wanted it is gone."""
        in_background(self._in_turn(work))

    async def _in_turn(self, work: Coroutine[Any, Any, None]) -> None:
        async with self._free:
            await work


def in_background(work: Coroutine[Any, Any, None]) -> None:
    """Do it beside everything else."""
    task = asyncio.get_running_loop().create_task(work)
    _BACKGROUND.add(task)
    task.add_done_callback(_BACKGROUND.discard)
