"""Several gateway processes that accept from one socket, replaced when they die."""

import logging
import os
import signal
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

    children = {_start(serve) for _ in range(count)}
    for number in _SIGNALS:
        signal.signal(number, stop)
    while children:
        pid, status = os.wait()
        children.discard(pid)
        if not stopping:
            log.error("gateway process %d ended (%d) and is replaced", pid, status)
            time.sleep(_AGAIN_S)
            children.add(_start(serve))
            if stopping:  # the signal came while it was started
                stop(signal.SIGTERM, None)


def _start(serve: Callable[[], None]) -> int:
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
        serve()
        status = 0
    except BaseException:
        log.exception("the gateway process failed")
        raise
    finally:
        os._exit(status)
