"""`@app.task`: the easy path for people who come from a task queue.

A task is a consumer whose topic and group are named after its function, and a message whose body
is the arguments of a call. The decorated function stays callable.
"""

import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, Unpack

from rqretry.consumer.handler_binding import annotation_of
from rqretry.core.errors import InvalidArgument, show
from rqretry.core.message import Message, OutgoingMessage, PublishOptions, check_options
from rqretry.core.message_id import MessageId
from rqretry.core.typed_body import BodyMismatch, Fit, ReceivedMismatch, fitting, packed

P = ParamSpec("P")
R = TypeVar("R")

_POSITIONAL_ONLY = inspect.Parameter.POSITIONAL_ONLY
_VAR_POSITIONAL = inspect.Parameter.VAR_POSITIONAL
_VAR_KEYWORD = inspect.Parameter.VAR_KEYWORD


class Publishes(Protocol):
    """What a task needs of its app."""

    async def publish(self, topic: str, body: Any) -> MessageId:
        """Publish one body or OutgoingMessage."""
        ...

    def publish_sync(self, topic: str, body: Any) -> MessageId:
        """`publish` without asyncio."""
        ...


@dataclass(frozen=True, slots=True)
class TaskBinding:
    """How a task's arguments become a body, and a body its arguments.

    Attributes:
        signature: Of the function.
        fits: By parameter; one that takes everything is not here, and takes JSON values.
    """

    signature: inspect.Signature
    fits: Mapping[str, Fit]

    @property
    def simple(self) -> bool:
        """Never: the message itself is no argument."""
        return False

    def body(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The body of a call; by name where that can be, so that parameters may change places.

        Raises:
            InvalidArgument: The function cannot be called like that.
            BodyMismatch: An argument is not what its annotation promises.
            CodecError: An argument has no JSON form.
        """
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidArgument(
                f"task {show(name)} cannot be called like that: {error}; its parameters are"
                f" {show(str(self.signature))}"
            ) from error
        self._convert(bound, _stored)
        if any(p.kind in (_POSITIONAL_ONLY, _VAR_POSITIONAL) for p in self._given(bound)):
            stored = {"args": list(bound.args), "kwargs": bound.kwargs}
        else:
            named = dict(bound.arguments)
            for parameter in self._given(bound):
                if parameter.kind is _VAR_KEYWORD:
                    named |= named.pop(parameter.name)
            stored = {"kwargs": named}
        return {part: values for part, values in stored.items() if values}

    def arguments(self, message: Message[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of the call. Raises ReceivedMismatch."""
        body = message.body
        args, kwargs = _parts(body)
        if not isinstance(args, list | tuple) or not isinstance(kwargs, dict):
            raise ReceivedMismatch("the body is no call of a task: it needs args and kwargs")
        try:
            bound = self.signature.bind(*args, **kwargs)
            self._convert(bound, _received)
        except TypeError as error:
            raise ReceivedMismatch(f"the task does not take these arguments: {error}") from error
        except BodyMismatch as error:
            raise ReceivedMismatch(str(error)) from error
        return bound.args, bound.kwargs

    def _given(self, bound: inspect.BoundArguments) -> list[inspect.Parameter]:
        return [self.signature.parameters[name] for name in bound.arguments]

    def _convert(self, bound: inspect.BoundArguments, change: Callable[[Fit, Any], Any]) -> None:
        for parameter in self._given(bound):
            name = parameter.name
            fit, value = self.fits.get(name), bound.arguments[name]
            if fit is None:
                continue
            if parameter.kind is _VAR_POSITIONAL:
                bound.arguments[name] = tuple(change(fit, item) for item in value)
            elif parameter.kind is _VAR_KEYWORD:
                bound.arguments[name] = {key: change(fit, item) for key, item in value.items()}
            else:
                bound.arguments[name] = change(fit, value)


def bind_task(function: Callable[..., Any]) -> TaskBinding:
    """Read a task's signature once. Raises ConfigError where an annotation cannot be checked."""
    signature = inspect.signature(function)
    fits = {}
    for name, parameter in signature.parameters.items():
        fit = fitting(annotation_of(function, parameter), f"argument {name}")
        if fit is not None:
            fits[name] = fit
    return TaskBinding(signature, fits)


class TaskSender(Generic[P]):
    """A task with options for its message; see Task.options."""

    def __init__(
        self, app: Publishes, topic: str, binding: TaskBinding, options: PublishOptions
    ) -> None:
        self._app = app
        self._topic = topic
        self._binding = binding
        self._options = options

    def send(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, MessageId]:
        """Publish a call of the task; the arguments are those of the function.

        Raises:
            InvalidArgument: The function cannot be called like that.
            BodyMismatch: An argument is not what its annotation promises.
            CodecError: An argument has no JSON form.
        """
        return self._app.publish(self._topic, self._message(args, kwargs))

    def send_sync(self, *args: P.args, **kwargs: P.kwargs) -> MessageId:
        """`send` without asyncio."""
        return self._app.publish_sync(self._topic, self._message(args, kwargs))

    def _message(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> OutgoingMessage:
        body = self._binding.body(self._topic, args, kwargs)
        return OutgoingMessage(body=body, **self._options)


class Task(TaskSender[P], Generic[P, R]):
    """A function that can be called here and now, or sent to a worker.

    Attributes:
        function: The function as it was written.
        name: Its topic and group.
    """

    __name__: str

    def __init__(
        self, app: Publishes, name: str, function: Callable[P, R], binding: TaskBinding
    ) -> None:
        functools.update_wrapper(self, function)
        super().__init__(app, name, binding, {})
        self.function = function
        self.name = name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now."""
        return self.function(*args, **kwargs)

    def options(self, **options: Unpack[PublishOptions]) -> TaskSender[P]:
        """The task with options for its message: see PublishOptions. Raises InvalidArgument."""
        return TaskSender(self._app, self._topic, self._binding, check_options(options))

    def __repr__(self) -> str:
        return f"<Task {self.name}>"


def _parts(body: Any) -> tuple[Any, Any]:
    if not isinstance(body, dict) or not body.keys() <= {"args", "kwargs"}:
        return None, None
    return body.get("args", ()), body.get("kwargs", {})


def _stored(fit: Fit, value: Any) -> Any:
    """An argument as the body holds it; the worker will be able to read it."""
    made = packed(value)
    fit(made)
    return made


def _received(fit: Fit, value: Any) -> Any:
    return fit(value)
