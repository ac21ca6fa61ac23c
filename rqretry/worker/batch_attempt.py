"""Calling a batch handler: through middleware, to an answer for each message.

Middleware is called for each message, as for a handler of single ones. The handler is called once,
when each of these calls has come as far as call_next, or has ended without it.
"""

import asyncio
import contextvars
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rqretry.consumer.handler_binding import BatchBinding
from rqretry.consumer.registry import ConsumerSpec
from rqretry.core.batch_result import Answer, read_batch, stranger
from rqretry.core.consume_result import ConsumeResult, HandlerSignal
from rqretry.core.failure_record import carry_fingerprint, fingerprint_of
from rqretry.core.message import Message
from rqretry.core.middleware import Hooks
from rqretry.core.typed_body import BodyMismatch, ReceivedMismatch
from rqretry.observability.log_format import AttemptFacts, current_attempt
from rqretry.observability.observer import BatchAttempt
from rqretry.worker.invoker import Call

log = logging.getLogger("rqretry")

_FOLDED_S = 60.0
Messages = Sequence[Message[Any]]
Answers = dict[str, Answer]
"""By message id."""


class Calling:
    """What a caller calls the handler with.

    Attributes:
        messages: The argument.
    """

    def __init__(self, messages: Iterable[Message[Any]]) -> None:
        self.messages = list(messages)

    @property
    def cancelled(self) -> bool:
        """Whether the handler's result is wanted for none of them any more."""
        return all(message.cancelled for message in self.messages)


class BatchCaller:
    """Calls one batch handler."""

    def __init__(self, spec: ConsumerSpec, call: Call, hooks: Hooks) -> None:
        assert isinstance(spec.binding, BatchBinding)
        self._spec = spec
        self._call: Any = call
        self._hooks = hooks
        self._fit = spec.binding.fit
        self._read = spec.return_reader()
        self._stranger_named_at = float("-inf")

    async def answers(self, messages: Messages, watched: BatchAttempt | None = None) -> Answers:
        """The answer for each message; `watched` observes the handler's call.

        Raises:
            asyncio.CancelledError: The batch was called off.
        """
        current_attempt.set(_facts(messages))

        async def handle(some: Messages) -> Answers:
            return await self._handled(some, watched)

        if self._hooks.middleware:
            return await _Meeting(handle, self._hooks, messages).answers()
        return await handle(messages)

    async def _handled(self, messages: Messages, watched: BatchAttempt | None) -> Answers:
        found: Answers = {}
        for message in messages:
            try:
                if self._fit is not None:
                    message._checked_body(self._fit)  # noqa: SLF001 - for consumers only
            except BodyMismatch as error:
                found[message.id] = ReceivedMismatch(str(error))
        calling = Calling(message for message in messages if message.id not in found)
        if not calling.messages:
            return found
        ids = [message.id for message in calling.messages]  # the handler may empty the list

        async def call() -> Any:
            return await self._call(calling)

        try:
            value = await (call if watched is None else watched.around(call))()
            self._name_stranger(stranger(value, ids))
            return found | read_batch(value, ids, self._read)
        except BaseException as error:
            if issubclass(type(error), asyncio.CancelledError) and _is_cancelled():
                raise
            return found | dict.fromkeys(ids, _of_all(error))

    def _name_stranger(self, what: str | None) -> None:
        now = time.monotonic()
        if what is not None and now - self._stranger_named_at >= _FOLDED_S:
            self._stranger_named_at = now
            log.error("handler %s, group %s: %s", self._spec.name, self._spec.group, what)


class _Meeting:
    """Middleware of all messages of a batch, and the handler in the midst of it."""

    def __init__(
        self,
        handle: Callable[[Messages], Any],
        hooks: Hooks,
        messages: Messages,
    ) -> None:
        self._handle = handle
        self._around = hooks.around(self._call_next)
        self._messages = messages
        self._not_there = {message.id for message in messages}
        self._there: dict[str, asyncio.Future[ConsumeResult]] = {}
        self._all_there = asyncio.Event()
        self._met = False

    async def answers(self) -> Answers:
        tasks = {message.id: self._task(message) for message in self._messages}
        try:
            await self._all_there.wait()
            self._met = True
            came = [message for message in self._messages if message.id in self._there]
            answers = await self._handle(came) if came else {}
            for id_, future in self._there.items():
                _resolve(future, answers[id_])
            ended = await asyncio.gather(*tasks.values(), return_exceptions=True)
        finally:
            for task in tasks.values():
                task.cancel()
        return dict(zip(tasks, ended, strict=True))

    async def _ended(self, message: Message[Any]) -> Answer:
        """How its middleware ends: SystemExit out of a task would end the event loop."""
        try:
            return await self._around(message)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - it is the answer
            return error

    def _task(self, message: Message[Any]) -> asyncio.Task[Answer]:
        context = contextvars.copy_context()
        context.run(current_attempt.set, message)
        task = asyncio.get_running_loop().create_task(self._ended(message), context=context)
        task.add_done_callback(lambda _: self._arrived(message.id))
        return task

    def _arrived(self, id_: str) -> None:
        self._not_there.discard(id_)
        if not self._not_there:
            self._all_there.set()

    async def _call_next(self, message: Message[Any]) -> ConsumeResult:
        future: asyncio.Future[ConsumeResult] = asyncio.get_running_loop().create_future()
        if self._met or message.id in self._there:  # it calls the handler once more
            _resolve(future, (await self._handle([message]))[message.id])
        else:
            self._there[message.id] = future
            self._arrived(message.id)
        return await future


def _resolve(future: "asyncio.Future[ConsumeResult]", answer: Answer) -> None:
    if future.done():  # its middleware has stopped waiting
        return
    if isinstance(answer, HandlerSignal):
        future.set_result(answer.result)
    elif isinstance(answer, StopIteration):  # which no future accepts
        future.set_exception(RuntimeError("the handler raised StopIteration"))
    elif isinstance(answer, BaseException):
        future.set_exception(answer)
    else:
        future.set_result(answer)


def _of_all(error: BaseException) -> BaseException:
    """What a handler raised, as the failure of each message, or what its class raises itself."""
    try:
        # Each that raises it again adds to its traceback, and it is one failure all the same.
        carry_fingerprint(error, fingerprint_of(error))
    except BaseException as worse:  # noqa: BLE001 - of the code of somebody's class
        return RuntimeError(f"{type(error).__qualname__}, which raises {worse!r} itself")
    return error


def _facts(messages: Messages) -> AttemptFacts:
    """What a log record says that the handler writes."""
    topics = ", ".join(sorted({message.topic for message in messages}))
    return AttemptFacts("", topics, messages[0].group, 0, messages[0].trace_id)


def _is_cancelled() -> bool:
    """Whether this batch was cancelled; else a CancelledError came out of the handler itself."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
