"""Being told to stop before there is anything to stop.

A worker that gets SIGTERM while it imports the app, or waits for a Redis that is not there, ends as
cleanly as later; so it does as process 1 of a container, which the kernel shields from signals that
have no handler.
"""

import os
import signal
import threading
from types import FrameType
from typing import Any, Self

SIGNALS = (signal.SIGTERM, signal.SIGINT)
_AGAIN_S = 1.5


class StoppedEarly(BaseException):
    """Raised in the main thread by the first signal; no handler of `Exception` takes it."""


class Stoppable:
    """Inside this block a signal raises StoppedEarly. Main thread only; may be nested."""

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}
        self._told = False
        self._left = threading.Event()

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raise StoppedEarly if a signal came and somebody's code swallowed what it raised."""
        if self._told:
            raise StoppedEarly

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if not self._told:
            self._told = True
            threading.Thread(target=self._insist, args=(number,), daemon=True).start()
        raise StoppedEarly

    def _insist(self, number: int) -> None:
        """Say it again until this block is left: what was raised can get lost in a callback."""
        while not self._left.wait(_AGAIN_S):
            os.kill(os.getpid(), number)
