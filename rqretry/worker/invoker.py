"""Calling a handler: in the event loop, in a thread, or in a process of its own.

Timeouts are enforced in attempt.py; here is what becomes of a call that is called off.
"""

import asyncio
import contextvars
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, NamedTuple, Protocol

from rqretry.consumer.process_pool import ProcessSlot
from rqretry.consumer.registry import ConsumerSpec
from rqretry.core.message import Message
from rqretry.worker.daemon_threads import DaemonThreads

Call = Callable[[Message[Any]], Coroutine[Any, Any, Any]]
"""Calls a handler with a message and returns what it returns, or raises what it raises."""


class Caller(Protocol):
    """Calls a handler with a message."""

    can_stick: bool
    """Whether a handler may still run after its attempt was called off, as a thread does."""

    @property
    def call(self) -> Call:
        """What the attempt awaits to get the handler's result."""

    def shut_down(self) -> None:
        """Wait for nothing and start nothing more."""


def make_caller(spec: ConsumerSpec) -> Caller:
    """Choose the caller for a consumer: a process, the event loop or a thread."""
    if spec.in_process:
        return ProcessCaller(spec)
    return LoopCaller(spec) if spec.is_async else ThreadCaller(spec)


class LoopCaller:
    """Calls an async function in the event loop."""

    can_stick = False

    def __init__(self, spec: ConsumerSpec) -> None:
        self._handler = spec.handler
        self._binding = spec.binding
        # Nothing stands between a slot and a handler that takes the message as it is.
        self.call: Call = self._handler if self._binding.simple else self._call

    def _call(self, message: Message[Any]) -> Coroutine[Any, Any, Any]:
        args, kwargs = self._binding.arguments(message)
        coroutine: Coroutine[Any, Any, Any] = self._handler(*args, **kwargs)
        return coroutine

    def shut_down(self) -> None:
        """Nothing is held."""


class ThreadCaller:
    """Calls a plain function in a pool of threads. The slot is taken until the function returns."""

    can_stick = True

    def __init__(self, spec: ConsumerSpec) -> None:
        self._handler = spec.handler
        self._binding = spec.binding
        self._stopped = False
        self._threads = DaemonThreads(spec.concurrency, f"rqretry-{spec.group}")

    async def call(self, message: Message[Any]) -> Any:
        """Run the function, in a copy of the attempt's context."""
        args, kwargs = self._binding.arguments(message)
        return await self._finished(message, lambda: self._handler(*args, **kwargs))

    def shut_down(self) -> None:
        """Start no more calls; those that run are left alone."""
        self._stopped = True
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _call_off(self, message: Message[Any]) -> None:
        """The attempt is over, the thread is not: it can look at message.cancelled."""

    async def _finished(self, message: Message[Any], call: Callable[[], Any]) -> Any:
        loop, context = asyncio.get_running_loop(), contextvars.copy_context()
        future = loop.run_in_executor(self._threads, context.run, caught, call)
        called_off: asyncio.CancelledError | None = None
        while not future.done():
            try:
                await asyncio.shield(future)
            except asyncio.CancelledError as error:
                if self._stopped or not message.cancelled:
                    raise
                called_off = error  # wait for the thread all the same
                self._call_off(message)
        if called_off is not None:
            raise called_off
        value, raised = future.result()
        if raised is not None:
            raise raised
        return value


class ProcessCaller(ThreadCaller):
    """Calls a function in a process, for which a thread waits; calling it off kills the process."""

    can_stick = False

    def __init__(self, spec: ConsumerSpec) -> None:
        super().__init__(spec)
        self._slots = [ProcessSlot() for _ in range(spec.concurrency)]
        self._free = deque(self._slots)
        self._used: dict[Message[Any], ProcessSlot] = {}

    async def call(self, message: Message[Any]) -> Any:
        """Run the function in a free process."""
        args, kwargs = self._binding.arguments(message)
        slot = self._free.popleft()
        self._used[message] = slot
        try:
            return await self._finished(message, lambda: slot.call(self._handler, args, kwargs))
        finally:
            self._free.append(self._used.pop(message))

    def shut_down(self) -> None:
        """End all processes."""
        super().shut_down()
        for slot in self._slots:
            slot.close()

    def _call_off(self, message: Message[Any]) -> None:
        self._used[message].kill()


def caught(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """What a function returned or raised: futures take no StopIteration, loops no SystemExit."""
    try:
        return call(), None
    except BaseException as error:  # noqa: BLE001 - raised again in the event loop
        return None, error


class Waiting(NamedTuple):
    """An attempt of a handler that waits for something."""

    coroutine: Coroutine[Any, Any, Any]
    run: Callable[..., Any]
    """Of the context of the attempt."""
    waited: Any
    """What it waits for."""
    started: float


@types.coroutine
def resumed(waiting: Waiting) -> Generator[Any, Any, Any]:
    """Drive a coroutine in the context of its attempt, inside the current task.

    A slot's task runs one attempt after another without a task for each; context variables that
    one attempt sets must not be seen by the next.
    """
    coroutine, run, waited, _ = waiting
    while True:
        try:
            value = yield waited
            step = coroutine.send
        except BaseException as error:  # noqa: BLE001 - thrown into the coroutine, where it belongs
            step, value = coroutine.throw, error
        try:
            waited = run(step, value)
        except StopIteration as end:
            return end.value
        except GeneratorExit as error:
            if isinstance(value, GeneratorExit):  # we are being closed
                raise
            raise raised_itself(error) from error


def raised_itself(error: GeneratorExit) -> RuntimeError:
    """The error for a GeneratorExit that the handler raised itself: nobody closed its coroutine."""
    raised = RuntimeError("the handler raised GeneratorExit")
    raised.__cause__ = error
    return raised
