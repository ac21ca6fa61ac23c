"""`@app.task`: the easy path for people who come from a task queue.

A task is a consumer whose topic and group are named after its function, and a message whose body
is the arguments of a call. The decorated function stays callable.
"""

import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from rqretry.durations import Duration
from rqretry.errors import InvalidArgument, show
from rqretry.ids import MessageId
from rqretry.message import Message, OutgoingMessage
from rqretry.typed import BodyMismatch, Fit, fitting, packed

P = ParamSpec("P")
R = TypeVar("R")

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Publishes(Protocol):
    """What a task needs of its app."""

    async def publish_item(self, topic: str, item: OutgoingMessage) -> MessageId:
        """Publish with asyncio."""
        ...

    def publish_item_sync(self, topic: str, item: OutgoingMessage) -> MessageId:
        """Publish without asyncio."""
        ...


class Call(Generic[P]):
    """A task with options for its message; see Task.options."""

    def __init__(
        self, app: Publishes, topic: str, signature: inspect.Signature, options: Mapping[str, Any]
    ) -> None:
        self._app = app
        self._topic = topic
        self._signature = signature
        self._options = options

    def send(self, *args: P.args, **kwargs: P.kwargs) -> Awaitable[MessageId]:
        """Publish a call of the task; the arguments are those of the function.

        Raises:
            InvalidArgument: The function cannot be called like that.
        """
        return self._app.publish_item(self._topic, self._message(args, kwargs))

    def send_sync(self, *args: P.args, **kwargs: P.kwargs) -> MessageId:
        """The same without asyncio."""
        return self._app.publish_item_sync(self._topic, self._message(args, kwargs))

    def _message(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> OutgoingMessage:
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidArgument(
                f"task {show(self._topic)} cannot be called like that: {error}; its parameters are"
                f" {show(str(self._signature))}"
            ) from error
        body: dict[str, Any] = {}
        if args:
            body["args"] = [packed(value) for value in args]
        if kwargs:
            body["kwargs"] = {name: packed(value) for name, value in kwargs.items()}
        return OutgoingMessage(body=body, **self._options)


class Task(Call[P], Generic[P, R]):
    """A function that can be called here and now, or sent to a worker.

    Attributes:
        function: The function as it was written.
        name: Its topic and group.
    """

    def __init__(self, app: Publishes, name: str, function: Callable[P, R]) -> None:
        super().__init__(app, name, inspect.signature(function), {})
        self.function = function
        self.name = name
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", name)
        self.__qualname__ = getattr(function, "__qualname__", name)
        self.__module__ = function.__module__
        self.__wrapped__ = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now."""
        return self.function(*args, **kwargs)

    def options(
        self,
        *,
        delay: Duration | None = None,
        delay_level: int | None = None,
        id: str | None = None,  # noqa: A002 - the name of the contract
        tag: str | None = None,
        keys: str | Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
    ) -> Call[P]:
        """The task with options for its message; the fields are those of `publish`."""
        options = {
            "delay": delay,
            "delay_level": delay_level,
            "id": id,
            "tag": tag,
            "keys": keys,
            "headers": headers,
        }
        return Call(self._app, self._topic, self._signature, options)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"


@dataclass(frozen=True, slots=True)
class TaskBinding:
    """How a task's function is called with a message: the body holds the arguments."""

    signature: inspect.Signature
    fits: Mapping[str, Fit]
    """By parameter; a parameter that takes everything is not here."""

    @property
    def simple(self) -> bool:
        """Never: the message itself is no argument."""
        return False

    def arguments(self, message: Message[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of the call. Raises BodyMismatch."""
        body = message.body
        if not isinstance(body, dict) or not body.keys() <= {"args", "kwargs"}:
            raise BodyMismatch("the body is no call of a task: it needs args and kwargs")
        try:
            bound = self.signature.bind(*body.get("args", ()), **body.get("kwargs", {}))
        except TypeError as error:
            raise BodyMismatch(f"the task does not take these arguments: {error}") from error
        for name, value in bound.arguments.items():
            if name in self.fits:
                bound.arguments[name] = self.fits[name](value)
        return bound.args, bound.kwargs


def bind_task(function: Callable[..., Any]) -> TaskBinding:
    """Read a task's signature once. Raises ConfigError where an annotation cannot be checked."""
    signature = inspect.signature(function)
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # noqa: BLE001 - an annotation that cannot be resolved says nothing
        hints = {}
    fits = {}
    for name, parameter in signature.parameters.items():
        fit = fitting(hints[name]) if name in hints and parameter.kind in _NAMED else None
        if fit is not None:
            fits[name] = fit
    return TaskBinding(signature, fits)
