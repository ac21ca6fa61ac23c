"""Several gateway processes that accept from one socket, replaced when they die."""

import logging
import os
import signal
import time
from collections.abc import Callable

log = logging.getLogger("rqretry")

_AGAIN_S = 1.0


def run_processes(count: int, serve: Callable[[], None]) -> None:
    """Run `serve` in so many children until SIGINT or SIGTERM; replace those that end before."""
    stopping: list[int] = []

    def stop(number: int, _frame: object) -> None:
        stopping.append(number)
        for pid in [*children]:
            os.kill(pid, signal.SIGTERM)

    children = {_start(serve) for _ in range(count)}
    for number in (signal.SIGINT, signal.SIGTERM):
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
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        serve()
        status = 0
    except BaseException:
        log.exception("the gateway process failed")
        raise
    finally:
        os._exit(status)
