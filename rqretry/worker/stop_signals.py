"""Signals that stop a worker, also before there is one to stop.

A worker that gets SIGTERM while it imports the app, or waits for a Redis that is not there, ends as
cleanly as later; so it does as process 1 of a container, which the kernel shields from signals that
have no handler.
"""

import asyncio
import os
import signal
import threading
from types import FrameType
from typing import Any, Protocol, Self

SIGNALS = (signal.SIGTERM, signal.SIGINT)
_AGAIN_S = 1.5


class Stops(Protocol):
    """A worker: it runs until it is stopped."""

    async def run(self) -> None:
        """Until then."""

    def stop(self) -> None:
        """Gracefully."""


async def run_until_stopped(worker: Stops, *, signals: bool) -> None:
    """Run a worker in somebody's event loop; stop it when cancelled, or at a signal."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(worker.run(), name="rqretry worker")
    for number in SIGNALS if signals else ():
        loop.add_signal_handler(number, worker.stop)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        worker.stop()
        await task
        raise
    finally:
        for number in SIGNALS if signals else ():
            loop.remove_signal_handler(number)


class StoppedEarly(BaseException):
    """Raised in the main thread by the first signal; `except Exception` does not catch it."""


class Stoppable:
    """Inside this block a signal raises StoppedEarly. Main thread only; may be nested.

    After a signal the process ends: further ones are ignored, so that they do not decide how.
    """

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}
        self._signalled = False
        self._left = threading.Event()

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._on_signal:
                signal.signal(number, signal.SIG_IGN if self._signalled else handler)

    def check(self) -> None:
        """Raise StoppedEarly if a signal came and somebody's code swallowed what it raised."""
        if self._signalled:
            raise StoppedEarly

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._left.is_set():
            return
        if not self._signalled:
            self._signalled = True
            threading.Thread(target=self._insist, args=(number,), daemon=True).start()
        raise StoppedEarly

    def _insist(self, number: int) -> None:
        """Repeat it until this block is left: what was raised can get lost in a callback."""
        while not self._left.wait(_AGAIN_S):
            os.kill(os.getpid(), number)
