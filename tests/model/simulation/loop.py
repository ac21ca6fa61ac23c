"""An asyncio event loop on virtual time: one thread runs the code of many processes.

Time passes only when nothing is left to do now. A callback belongs to the process in whose context
it was made; those of a process that was killed are dropped, those of one that is frozen wait.
"""

import asyncio
import heapq
import logging
import os
import random
import time
from asyncio import AbstractEventLoop, Handle, TimerHandle
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from typing import Any
from unittest import mock

from rqretry.admin import topic_limits
from rqretry.producer import chunk
from rqretry.testing.clock import START_MS
from tests.model.simulation.chance import Chance


class Process:
    """A process of the simulation: a name, and whether it runs."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.frozen_until = 0.0


PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)
"""In whose code we are; None is the network, and the test itself."""

MOST_IN_A_CALL = 3
"""Messages of a bulk in one call: so a small bulk has two calls on the way."""

_Entry = tuple[Process | None, Handle]


class VirtualLoop(AbstractEventLoop):
    """As much of an event loop as asyncio's tasks, locks and time-outs need."""

    def __init__(self) -> None:
        self.now = 0.0
        self.steps = 0
        self.fault: BaseException | None = None
        self._ready: deque[_Entry] = deque()
        self._timers: list[tuple[float, int, _Entry]] = []
        self._count = 0
        self._tasks: list[asyncio.Task[Any]] = []
        self._closed = False

    # -- what asyncio asks for -----------------------------------------------------------------

    def time(self) -> float:
        """Virtual seconds since the beginning."""
        return self.now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        """Call it in this moment, after what was to be called before."""
        context = context or copy_context()
        handle = Handle(callback, args, self, context)
        if not self._closed:
            self._ready.append((context.get(PROCESS), handle))
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> TimerHandle:
        """Call it at a virtual time."""
        context = context or copy_context()
        handle = TimerHandle(when, callback, args, self, context)
        if not self._closed:
            self._put(when, (context.get(PROCESS), handle))
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> TimerHandle:
        """Call it after virtual seconds."""
        return self.call_at(self.now + delay, callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        """A task, kept until the end: none is collected in the middle of a run."""
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.append(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A task that nobody waits for has failed."""
        self.fault = self.fault or context.get("exception")

    def get_debug(self) -> bool:
        """No."""
        return False

    def is_running(self) -> bool:
        """Yes."""
        return True

    def is_closed(self) -> bool:
        """Whether the run is over."""
        return self._closed

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        """It is passed over when its time comes."""

    # -- running -------------------------------------------------------------------------------

    def spawn(self, process: Process | None, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine as the code of a process."""
        context = copy_context()
        context.run(PROCESS.set, process)
        task = self.create_task(work, context=context)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.fault = self.fault or task.exception()

    def run(self, until: Callable[[], bool], most_s: float) -> bool:
        """Run until the condition holds; False if it does not by this virtual time, or never."""
        asyncio._set_running_loop(self)
        try:
            while not until():
                if not self._step(most_s):
                    return False
            return True
        finally:
            asyncio._set_running_loop(None)

    def _step(self, most_s: float) -> bool:
        if not self._ready:
            if not self._timers or self._timers[0][0] > most_s:
                return False
            when, _, entry = heapq.heappop(self._timers)
            self.now = max(self.now, when)
            self._ready.append(entry)
        process, handle = self._ready.popleft()
        if handle.cancelled() or (process is not None and not process.alive):
            return True
        if process is not None and process.frozen_until > self.now:
            self._put(process.frozen_until, (process, handle))
            return True
        self.steps += 1
        handle._run()
        if self.fault is not None:
            raise self.fault
        return True

    def _put(self, when: float, entry: _Entry) -> None:
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, entry))

    def close(self) -> None:
        """The run is over: what was left in the middle of something is ended without a word."""
        self._closed = True
        self._ready.clear()
        self._timers.clear()
        for task in self._tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with suppress(BaseException):
                    task.get_coro().close()
            elif not task.cancelled():
                task.exception()  # noted
        self._tasks.clear()


@contextmanager
def virtual(loop: VirtualLoop, chance: Chance) -> Iterator[None]:
    """Time, noise and names come from the loop and the seed, for everything that runs inside."""
    real = random.Random

    def who() -> str:
        process = PROCESS.get()
        return process.name if process else "network"

    def noise(size: int) -> bytes:
        return chance.bytes(chance.numbered(f"{who()}/noise"), size)

    def generator(*given: Any) -> random.Random:
        return real(*given) if given else chance.source(chance.numbered(f"{who()}/random"))

    state = random.getstate()
    level = logging.root.manager.disable
    with ExitStack() as stack:
        stack.callback(random.setstate, state)
        stack.callback(logging.disable, level)
        random.seed(chance.seed)
        logging.disable(logging.CRITICAL)
        for module, name, value in (
            (time, "monotonic", loop.time),
            (time, "time_ns", lambda: START_MS * 1_000_000 + round(loop.now * 1e9)),
            (os, "urandom", noise),
            (random, "Random", generator),
        ):
            stack.enter_context(mock.patch.object(module, name, value))
        stack.enter_context(mock.patch.object(chunk, "FULL_CALL", MOST_IN_A_CALL))
        for least in ("LEAST_HISTORY_BYTES", "_LEAST_KEPT_S"):  # so that runs forget what they keep
            stack.enter_context(mock.patch.object(topic_limits, least, 1))
        room = chunk.Room(MOST_IN_A_CALL)
        stack.enter_context(mock.patch.object(chunk.chunks, "__defaults__", (room,)))
        for place in (
            "rqretry.consumer.client_parts.worker_name",
            "rqretry.worker.worker.worker_name",
        ):
            stack.enter_context(mock.patch(place, who))
        yield


def current() -> Process:
    """The process whose code runs."""
    process = PROCESS.get()
    assert process is not None
    return process
