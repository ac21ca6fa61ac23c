"""The buffer of a batch consumer, and the tasks that run what is in it: one for each batch.

A full batch starts as soon as a slot is free. Another one starts when its first message has waited
for batch_wait, and the slot has been free for as long (docs/decisions/0078).
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from rqretry.protocol.command import MAX_BATCH
from rqretry.worker.leases import Delivery
from rqretry.worker.slots import HORIZON_S, Buffer

Batch = list[Delivery]


class BatchSlots(Buffer[Delivery]):
    """At most so many batches at once.

    Args:
        concurrency: How many.
        most: The most messages of a batch.
        wait_s: How long a batch that is not full waits for more.
        begin: Runs a batch.
        ended: Gets a batch whose slot is free again, and the error of ours that it ended with.
    """

    def __init__(
        self,
        concurrency: int,
        most: int,
        wait_s: float,
        begin: Callable[[Batch], Coroutine[Any, Any, None]],
        ended: Callable[[Batch, BaseException | None], None],
    ) -> None:
        super().__init__(concurrency)
        self._most = most
        self._wait_s = wait_s
        self._begin = begin
        self._ended = ended
        self._name = ""
        self._tasks: dict[asyncio.Task[None], int] = {}
        """The batches that run, and the slot of each."""
        self._timer: asyncio.TimerHandle | None = None
        self._open_since = 0.0
        """When a slot was free again after none had been."""

    def room(self, _running: int) -> int:
        """How many messages to get now: whole batches, for free slots and for the next moments."""
        self._measure()
        ahead = int(self._rate * HORIZON_S / self._most)
        target = (self._concurrency - len(self._tasks) + ahead) * self._most
        return min(MAX_BATCH, max(0, target - len(self._buffer)))

    def one_finished(self) -> bool:
        """Mark a message as done. Returns whether there may be room for more."""
        self._finished += 1
        return True

    def accept(self, items: Batch) -> None:
        """Take messages; a full batch starts at once."""
        self.accepted += len(items)
        self._buffer.extend(items)
        if self._timer is None or len(self._buffer) >= self._most:
            self._look()

    def start(self, name: str) -> None:
        """Begin to run what is accepted."""
        self._name = f"{name} batch"

    def close(self) -> None:
        """Stop the batches that run."""
        self._closed = True
        self._forget_timer()
        for task in self._tasks:
            task.cancel()

    def _look(self) -> None:
        """Start what is full, or has waited long enough."""
        self._forget_timer()
        while self._buffer and len(self._tasks) < self._concurrency and not self._closed:
            if len(self._buffer) < self._most and (wait_s := self._still_waits()) > 0:
                self._timer = asyncio.get_running_loop().call_later(wait_s, self._look)
                return
            self._run(self._take())

    def _still_waits(self) -> float:
        since = max(self._buffer[0].leased_at, self._open_since)
        return min(self._wait_s, since + self._wait_s - time.monotonic())

    def _take(self) -> Batch:
        """The next batch; of messages with the same id, in two topics, only one."""
        taken: dict[str, Delivery] = {}
        while self._buffer and len(taken) < self._most and self._buffer[0].id not in taken:
            delivery = self._buffer.popleft()
            taken[delivery.id] = delivery
        return list(taken.values())

    def _run(self, batch: Batch) -> None:
        task = asyncio.get_running_loop().create_task(self._begin(batch), name=self._name)
        slot = self._tasks[task] = list(self.running).index(0)
        self.counts[slot], self.running[slot] = len(batch), self._taken + 1
        self._taken += len(batch)
        task.add_done_callback(partial(self._free, batch))

    def _free(self, batch: Batch, task: asyncio.Task[None]) -> None:
        if len(self._tasks) == self._concurrency:
            self._open_since = time.monotonic()
        self.running[self._tasks.pop(task)] = 0
        self._look()
        self._ended(batch, None if task.cancelled() else task.exception())

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
