"""Several gateway processes that accept from one socket, replaced when they die.

They end with the process that started them, whatever ended that.
"""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable

log = logging.getLogger("rqretry")

_AGAIN_S = 1.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_processes(count: int, serve: Callable[[], None]) -> None:
    """Run `serve` in so many children until SIGINT or SIGTERM; replace those that end before."""
    stopping: list[int] = []

    def stop(number: int, _frame: object) -> None:
        stopping.append(number)
        for pid in [*children]:
            os.kill(pid, signal.SIGTERM)

    lifeline = os.pipe()
    children = {_start(serve, lifeline) for _ in range(count)}
    for number in _SIGNALS:
        signal.signal(number, stop)
    while children:
        pid, status = os.wait()
        children.discard(pid)
        if not stopping:
            log.error("gateway process %d ended (%d) and is replaced", pid, status)
            time.sleep(_AGAIN_S)
            children.add(_start(serve, lifeline))
            if stopping:  # the signal came while it was started
                stop(signal.SIGTERM, None)


def _start(serve: Callable[[], None], lifeline: tuple[int, int]) -> int:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return pid
    status = 1
    try:
        for number in _SIGNALS:  # until it serves, a signal ends it; `stop` is its parent's
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        reading, writing = lifeline
        os.close(writing)  # then only the parent has that end
        threading.Thread(target=_end_with_parent, args=(reading,), daemon=True).start()
        serve()
        status = 0
    except BaseException:
        log.exception("the gateway process failed")
        raise
    finally:
        os._exit(status)


def _end_with_parent(lifeline: int) -> None:
    os.read(lifeline, 1)  # nobody ever writes: it ends when the parent does
    os.kill(os.getpid(), signal.SIGTERM)
