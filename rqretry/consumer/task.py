"""`@app.task`: the easy path for people who come from a task queue.

A task is a consumer whose topic and group are named after its function, and a message whose body
is the arguments of a call. The decorated function stays callable.
"""

import functools
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, Unpack

from rqretry.consumer.handler_binding import TaskBinding
from rqretry.core.limits import check_options
from rqretry.core.message import OutgoingMessage, PublishOptions
from rqretry.core.message_id import MessageId
from rqretry.core.public_call import hinted

P = ParamSpec("P")
R = TypeVar("R")


_ELSEWHERE = {
    "delay": "send_sync(...), or `await send(...)`",
    "apply_async": "options(delay=...).send_sync(...)",
    "enqueue": "send_sync(...), or `await send(...)`",
    "kiq": "`await send(...)`",
    "send_with_options": "options(...).send_sync(...)",
    "retry": "`raise Retry(...)` in the function",
}
"""How other libraries call it, and how we do."""


class Publishes(Protocol):
    """What a task or a topic needs of its app."""

    async def publish(self, topic: str, body: Any) -> MessageId:
        """Publish one body or OutgoingMessage."""

    def publish_sync(self, topic: str, body: Any) -> MessageId:
        """`publish` without asyncio."""


class TaskSender(Generic[P]):
    """A task with options for its message; see Task.options."""

    def __init__(
        self, app: Publishes, topic: str, binding: TaskBinding, options: PublishOptions
    ) -> None:
        self._app = app
        self._topic = topic
        self._binding = binding
        self._options = options

    @hinted
    def send(self, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, MessageId]:
        """Publish a call of the task; the arguments are those of the function.

        Raises:
            InvalidArgument: The function cannot be called like that.
            BodyMismatch: An argument is not what its annotation promises.
            CodecError: An argument has no JSON form.
        """
        return self._app.publish(self._topic, self._message(args, kwargs))

    @hinted
    def send_sync(self, /, *args: P.args, **kwargs: P.kwargs) -> MessageId:
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

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now."""
        return self.function(*args, **kwargs)

    @hinted
    def options(self, **options: Unpack[PublishOptions]) -> TaskSender[P]:
        """The task with options for its message: see PublishOptions. Raises InvalidArgument."""
        check_options(options, PublishOptions, "publish option")
        return TaskSender(self._app, self._topic, self._binding, options)

    def __getattr__(self, name: str) -> Any:
        """Raises AttributeError, which names the method that other libraries call `name`."""
        ours = _ELSEWHERE.get(name)
        hint = f"; rqretry calls it {ours}" if ours else ""
        known_as = vars(self).get("name", "?")  # a copy that is being made has no name yet
        raise AttributeError(
            f"task {known_as} has no attribute {name!r}{hint}", name=name, obj=self
        )

    def __repr__(self) -> str:
        return f"<Task {self.name}>"
