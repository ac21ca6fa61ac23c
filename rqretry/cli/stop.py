"""Stopping a command that runs until it is interrupted."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Whether SIGINT or SIGTERM came; they do nothing else inside, nor after one came."""
    asked = threading.Event()

    def ask(_signal: int, _frame: FrameType | None) -> None:
        asked.set()

    before = {one: signal.signal(one, ask) for one in _SIGNALS}
    try:
        yield asked.is_set
    finally:
        for one, handler in before.items():
            signal.signal(one, signal.SIG_IGN if asked.is_set() else handler)
