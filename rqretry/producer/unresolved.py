"""Calls that may have been done, so that a client can repeat them exactly."""

import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from rqretry.protocol.publish import Prepared

REMEMBERED_S = 3600.0
MOST_BYTES = 64 * 2**20
_OVERHEAD = 400
"""Bytes that a message takes here beside its own."""


class _Call(Protocol):
    @property
    def messages(self) -> Sequence[Prepared]: ...


C = TypeVar("C", bound=_Call)


class Unresolved(Generic[C]):
    """Calls by the ids of their messages, for an hour; any thread may use it.

    A call stays when it was repeated: somebody may ask for its other messages, too.

    Attributes:
        by_id: The call of each message.
    """

    def __init__(self) -> None:
        self.by_id: dict[str, C] = {}
        self._calls: deque[tuple[float, int, C]] = deque()
        self._bytes = 0
        self._lock = threading.Lock()

    def find(self, ids: Iterable[str]) -> C | None:
        """The call that one of these messages was in."""
        self._forget_old()
        return next(filter(None, map(self.by_id.get, ids)), None)

    def add(self, call: C) -> bool:
        """Remember a call; False: too much is remembered already."""
        self._forget_old()
        size = sum(len(message.data) + _OVERHEAD for message in call.messages)
        with self._lock:
            if self._bytes + size > MOST_BYTES:
                return False
            self._calls.append((time.monotonic(), size, call))
            self._bytes += size
            self.by_id |= {message.id: call for message in call.messages}
        return True

    def forget(self, ids: Iterable[str]) -> None:
        """These are known: they were not stored, and are published anew."""
        with self._lock:
            for id_ in ids:
                self.by_id.pop(id_, None)

    def _forget_old(self) -> None:
        with self._lock:
            while self._calls and self._calls[0][0] + REMEMBERED_S < time.monotonic():
                _, size, call = self._calls.popleft()
                self._bytes -= size
                for message in call.messages:
                    if self.by_id.get(message.id) is call:
                        del self.by_id[message.id]
