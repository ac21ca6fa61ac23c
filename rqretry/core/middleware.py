"""What an app may add around attempts: middleware, and callbacks for events."""

import asyncio
import inspect
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from rqretry.core.consume_result import ConsumeResult
from rqretry.core.errors import refuse, show
from rqretry.core.limits import check_function
from rqretry.core.message import Message

log = logging.getLogger("rqretry")

LAST_CALLBACKS_S = 10.0
"""How long callbacks may take when a worker has stopped."""
MOST_POSTED = 1000
"""Events that wait for callbacks; beyond that the oldest are dropped."""
_SAY_EVERY_S = 60.0

CallNext = Callable[[Message[Any]], Awaitable[ConsumeResult]]
"""What a middleware calls: the middleware further in, or the handler."""
Middleware = Callable[[Message[Any], CallNext], Awaitable[ConsumeResult]]
"""An async function around every attempt; see `App.middleware`."""

EventName = Literal["failure", "dead_letter", "lease_lost", "started", "stopped"]
"""What `App.on` can be asked for."""
EVENTS: tuple[EventName, ...] = get_args(EventName)


@dataclass(frozen=True, slots=True)
class Event:
    """What a callback of `@app.on` gets.

    Attributes:
        name: "failure", "dead_letter", "lease_lost", "started" or "stopped".
        worker: The worker process.
        group: The consumer group; "" for started and stopped.
        topic: The message's topic.
        message_id: The message.
        attempt: Which delivery it was.
        reason: The error's type and message, or the handler's reason.
        next_due_ms: When it will be tried again, server time in milliseconds; None for never.
        fingerprint: The same for failures of the same cause and code; "" where nothing failed.
    """

    name: EventName
    worker: str
    group: str = ""
    topic: str = ""
    message_id: str = ""
    attempt: int = 0
    reason: str = ""
    next_due_ms: int | None = None
    fingerprint: str = ""


Callback = Callable[[Event], Any]
"""A function, plain or async, that `App.on` registers; what it returns means nothing."""


class Hooks:
    """The middleware and callbacks of an app."""

    def __init__(self) -> None:
        self.middleware: list[Middleware] = []
        self._callbacks: dict[str, list[Callback]] = {name: [] for name in EVENTS}

    def add_middleware(self, middleware: Middleware) -> None:
        """Put a middleware around every attempt; the first one added is the outermost."""
        if not inspect.iscoroutinefunction(middleware):
            refuse("middleware", middleware, "must be an async function (message, call_next)")
        check_function("middleware", middleware, "message", "call_next")
        self.middleware.append(middleware)

    def add_callback(self, name: EventName, callback: Callback) -> None:
        """Call a function, plain or async, when something happens."""
        self.check_event(name)
        check_function("callback", callback, "event")
        self._callbacks[name].append(callback)

    def check_event(self, name: EventName) -> None:
        """Raises InvalidArgument: There is no such event."""
        if name not in EVENTS:
            refuse("event", name, f"must be one of {', '.join(EVENTS)}")

    def wants(self, name: str) -> bool:
        """Whether anybody listens; nothing is built for an event that nobody hears."""
        return bool(self._callbacks[name])

    async def emit(self, event: Event) -> None:
        """Call the callbacks; one that fails is logged, and the others are called all the same."""
        for callback in self._callbacks[event.name]:
            task = asyncio.get_running_loop().create_task(_called(callback, event))
            try:
                await asyncio.wait([task])
            finally:
                task.cancel()

    def around(self, call: CallNext) -> CallNext:
        """The handler's call with all middleware around it."""
        for middleware in reversed(self.middleware):
            call = _wrapped(middleware, call)
        return call


class Announcer:
    """Calls callbacks off the path of messages: a slow callback holds up only other callbacks."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._posted: deque[Event] = deque(maxlen=MOST_POSTED)
        self._wanted = asyncio.Event()
        self._dropped, self._say_at = 0, 0.0

    def wants(self, name: str) -> bool:
        """Whether anybody listens."""
        return self._hooks.wants(name)

    def post(self, event: Event) -> None:
        """Have an event announced soon; of too many that wait, the oldest is dropped."""
        if len(self._posted) == MOST_POSTED:
            self._dropped += 1
            self._say_dropped(time.monotonic())
        self._posted.append(event)
        self._wanted.set()

    async def run(self) -> None:
        """Announce what is posted, for ever."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            await self.finish()

    async def finish(self) -> None:
        """Announce what is posted now."""
        while self._posted:
            await self._hooks.emit(self._posted.popleft())

    def _say_dropped(self, now: float) -> None:
        """Once a minute how many, from the first one on."""
        if now >= self._say_at:
            log.warning(
                "callbacks are %d events behind: the oldest were dropped, %d since this was last"
                " said; a callback that hangs or is slow holds up all others",
                MOST_POSTED, self._dropped,
            )  # fmt: skip
            self._dropped, self._say_at = 0, now + _SAY_EVERY_S

    async def close(self, last: Event) -> None:
        """Announce what is posted and a last event; what takes too long is called off."""
        self.post(last)
        try:
            async with asyncio.timeout(LAST_CALLBACKS_S):
                await self.finish()
        except TimeoutError:
            log.warning("callbacks took longer than %g s, and are called off", LAST_CALLBACKS_S)


async def _called(callback: Callback, event: Event) -> None:
    """Call it in a task of its own: what it raises, and whom it cancels, ends nothing else."""
    try:
        answer = callback(event)
        if inspect.isawaitable(answer):
            await answer
    except BaseException:  # also SystemExit, which would end the event loop
        log.exception("callback %s for %s failed", show(callback), event.name)


def _wrapped(middleware: Middleware, call: CallNext) -> CallNext:
    async def wrapped(message: Message[Any]) -> ConsumeResult:
        result: object = await middleware(message, call)
        if type(result) is not ConsumeResult:
            raise TypeError(
                f"middleware {show(middleware)} returned {show(result)}, which is no"
                " ConsumeResult: return what call_next returned"
            )
        return result

    return wrapped
