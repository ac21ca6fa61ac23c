"""The buffer of a consumer, and the tasks that run what is in it, without a task for each item."""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine, MutableSequence
from typing import Any, Generic, TypeVar

from rqretry.protocol.command import MAX_BATCH

log = logging.getLogger("rqretry")

T = TypeVar("T")

HORIZON_S = 0.05
"""Lease what will be finished in this time, beyond the free slots (docs/decisions/0015)."""
LONGEST_RUN_S = 0.005
"""A slot yields to the event loop after this, however short the handlers are."""
_RATE_MEMORY_S = 0.2


Begin = Callable[[T, "asyncio.Task[None] | None", float], Coroutine[Any, Any, None] | None]
"""Begins an item, given the task of its slot and the monotonic time.

Returns what the slot must still await to finish the item; None if it is finished.
"""


class Buffer(ABC, Generic[T]):
    """What is leased and waits for a slot, and how fast it goes."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency = self._target = concurrency
        self._buffer: deque[T] = deque()
        self.accepted = 0
        """How many items were."""
        self._taken = 0
        """How many of them have left the buffer, in the order in which they were accepted."""
        self.running: MutableSequence[int] = [0] * concurrency
        """By slot, which of the accepted items it runs, counted from 1, a batch by its first one; 0
        for none. A supervisor reads it (docs/decisions/0102)."""
        self.counts: MutableSequence[int] = [1] * concurrency
        """How many items each of them are."""
        self._closed = False
        self._finished = 0
        self._rate = 0.0
        self._rate_from = (0, time.monotonic())

    @abstractmethod
    def room(self, running: int) -> int:
        """How many items to get now; 0 while the buffer is well filled."""

    @abstractmethod
    def accept(self, items: list[T]) -> None:
        """Take items; slots start on them as soon as they may."""

    @abstractmethod
    def start(self, name: str) -> None:
        """Begin to run what is accepted."""

    @abstractmethod
    def close(self) -> None:
        """Stop what runs, and begin nothing more."""

    def one_waits(self) -> bool:
        """A slot awaits its item. Returns whether the buffer holds anything."""
        return bool(self._buffer)

    def one_finished(self) -> bool:
        """Mark an item as done. Returns whether there may be room for more."""
        self._finished += 1
        return 2 * len(self._buffer) < self._target

    def take_back(self, which: Callable[[T], bool] = lambda _: True) -> list[T]:
        """Remove items from the front of the buffer while `which` accepts them, and return them."""
        taken = []
        while self._buffer and which(self._buffer[0]):
            taken.append(self._buffer.popleft())
            self._taken += 1
        return taken

    def _measure(self) -> None:
        finished, since = self._rate_from
        now = time.monotonic()
        if now - since >= _RATE_MEMORY_S:
            fresh = (self._finished - finished) / (now - since)
            self._rate = max(fresh, (self._rate + fresh) / 2)
            self._rate_from = (self._finished, now)


class Slots(Buffer[T]):
    """So many tasks, and what they are to run."""

    def __init__(
        self, concurrency: int, begin: Begin[T], longest_run_s: float = LONGEST_RUN_S
    ) -> None:
        super().__init__(concurrency)
        self._begin = begin
        self._longest_run_s = longest_run_s
        self._idle: deque[asyncio.Future[None]] = deque()
        self._tasks: list[asyncio.Task[None]] = []

    def room(self, running: int) -> int:
        """How many items to get now; 0 while the buffer is well filled."""
        self._measure()
        target = self._target = self._concurrency + int(self._rate * HORIZON_S)
        buffered = len(self._buffer)
        if buffered and 2 * buffered >= target:
            return 0
        return min(MAX_BATCH, max(0, target - buffered - running))

    def accept(self, items: list[T]) -> None:
        """Take items; slots start on them at once."""
        self.accepted += len(items)
        self._buffer.extend(items)
        self._wake(1)

    def one_waits(self) -> bool:
        """A slot awaits its item: wake others for the buffer. Returns whether it holds anything."""
        if self._buffer:
            self._wake(2)
        return bool(self._buffer)

    def start(self, name: str) -> None:
        """Start the tasks."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._run(number), name=f"{name} slot {number}")
            for number in range(self._concurrency)
        ]

    def close(self) -> None:
        """Stop the tasks."""
        self._closed = True
        for task in self._tasks:
            task.cancel()

    def _wake(self, slots: int) -> None:
        """Let idle slots look at the buffer.

        One is enough for items that do not wait. A slot whose item waits wakes two more, so that
        all are at work after a few turns of the event loop, and none is woken for nothing.
        """
        while slots and self._idle:
            slot = self._idle.popleft()
            if not slot.done():
                slot.set_result(None)
                slots -= 1

    async def _run(self, number: int) -> None:
        """Run items until it is closed, whatever they do to their task."""
        task = asyncio.current_task()
        while True:
            try:
                return await self._run_items(number, task)
            except asyncio.CancelledError:
                if self._closed:
                    raise
                if task is not None:  # an item has cancelled the task that it ran in
                    for _ in range(task.cancelling()):
                        task.uncancel()
            except Exception:
                log.exception("%s broke off, and goes on", task and task.get_name())

    async def _run_items(self, number: int, task: asyncio.Task[None] | None) -> None:
        running = self.running
        now = since = time.monotonic()
        while not self._closed:
            if not self._buffer:
                running[number] = 0
                idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._idle.append(idle)
                await idle
                now = since = time.monotonic()
                continue
            self._taken = running[number] = self._taken + 1
            rest = self._begin(self._buffer.popleft(), task, now)
            if rest is not None:
                await rest
            now = time.monotonic()
            if now - since > self._longest_run_s:
                await asyncio.sleep(0)
                now = since = time.monotonic()
