"""Waiting for wake keys on a cluster without asyncio: one blocked connection per key, one thread.

See watching.py. Here the others are unblocked before the caller goes on, because nothing runs
behind its back.
"""

import selectors
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from rqretry.core.errors import RqretryError
from rqretry.transport.pool_sync import SyncLine, SyncPool
from rqretry.transport.replies import BLOCK_MARGIN_SECONDS, ServerClock, TryAgain, is_error

BROKEN_S = 0.25
_TELL_EVERY_S = 0.005
_LAST_S = 1.0


def wait_apart(
    pool: SyncPool, clock: ServerClock, keys: Sequence[str], seconds: float
) -> str | None:
    """The first key that is set, or None: none was, or a server could not be asked.

    Raises:
        ConfigError, UnsafeServer: A server cannot be used.
    """
    waiting: dict[SyncLine, str] = {}
    try:
        for key in keys:
            line = pool.acquire(pool.topology.node(key), clock)
            waiting[line] = key
            if not line.client_id:
                (line.client_id,) = pool.exchange(line, [("CLIENT", "ID")])
            pool.send(line, [("BZPOPMIN", key, max(0.001, round(seconds, 3)))])
        found = _first(pool, waiting, time.monotonic() + seconds + BLOCK_MARGIN_SECONDS)
    except BaseException as error:
        for line in waiting:
            line.close()
        if isinstance(error, TryAgain):
            time.sleep(BROKEN_S)
            return None
        raise
    with suppress(TryAgain, RqretryError):
        _unblock(pool, clock, waiting)
    for line in waiting:  # those that could not be told
        line.close()
    return found


def _first(pool: SyncPool, waiting: dict[SyncLine, str], end: float) -> str | None:
    """Read the first reply that comes; its connection is given back."""
    with selectors.DefaultSelector() as selector:
        for line in waiting:
            selector.register(_socket(line), selectors.EVENT_READ, line)
        while (left := end - time.monotonic()) > 0:
            for ready, _ in selector.select(left):
                line = ready.data
                if line.connection.can_read(0):  # TLS has bytes that are no reply
                    key = waiting[line]
                    (reply,) = pool.receive(line, 1)
                    del waiting[line]
                    pool.release(line)
                    if is_error(reply):
                        time.sleep(BROKEN_S)
                    return key if isinstance(reply, list) else None
    return None


def _unblock(pool: SyncPool, clock: ServerClock, waiting: dict[SyncLine, str]) -> None:
    """Make the others answer; a wake-up that one of them got is put back."""
    end = time.monotonic() + _LAST_S
    while waiting and time.monotonic() < end:
        for line in list(waiting):
            _say(pool, clock, line, ("CLIENT", "UNBLOCK", line.client_id))
        for line, key in list(waiting.items()):
            if line.connection.can_read(_TELL_EVERY_S):
                (reply,) = pool.receive(line, 1)
                del waiting[line]
                pool.release(line)
                if isinstance(reply, list):
                    _say(pool, clock, line, ("ZADD", key, 0, "1"))


def _say(pool: SyncPool, clock: ServerClock, blocked: SyncLine, words: tuple[Any, ...]) -> None:
    line = pool.acquire(blocked.node, clock)
    try:
        pool.exchange(line, [words])
    except BaseException:
        line.close()
        raise
    pool.release(line)


def _socket(line: SyncLine) -> Any:
    return line.connection._sock  # noqa: SLF001 - redis-py has no name for it
