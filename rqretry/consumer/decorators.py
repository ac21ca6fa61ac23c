"""The decorators of an app, and its topics: what users declare with."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, overload

from rqretry.consumer.declared import Declared
from rqretry.consumer.handler_binding import bind_task
from rqretry.consumer.options import BatchConsumerOptions, ConsumerOptions
from rqretry.consumer.periodic import ScheduleOptions, add_schedule
from rqretry.consumer.task import Task
from rqretry.consumer.transaction_checker import TransactionCheckerOptions
from rqretry.consumer.typed_topic import BatchHandler, PublishesMany, Topic
from rqretry.core.errors import show
from rqretry.core.limits import (
    check_function,
    check_group,
    check_options,
    check_partitions,
    check_topic,
)
from rqretry.core.middleware import Callback, EventName, Middleware
from rqretry.core.public_call import hinted, hinted_decorator

D = TypeVar("D", bound=Declared)
F = TypeVar("F", bound=Callable[..., Any])
B = TypeVar("B", bound=BatchHandler[Any])
M = TypeVar("M", bound=Middleware)
C = TypeVar("C", bound=Callback)
T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


class Decorators(PublishesMany, Generic[D]):
    """What an app's users declare with."""

    _parts: D

    @overload
    def topic(self, name: str, *, body: type[T], partitions: int | None = None) -> Topic[T]: ...

    @overload
    def topic(
        self, name: str, *, body: Any = None, partitions: int | None = None
    ) -> Topic[Any]: ...

    @hinted
    def topic(self, name: str, *, body: Any = None, partitions: int | None = None) -> Topic[Any]:
        """Declare a topic: its body type, and its partitions for when it is created.

        Args:
            name: 1 to 127 characters of A-Z a-z 0-9 _ . -, the first no dot.
            body: A dataclass, TypedDict, msgspec Struct, pydantic model, or another type that a
                body must fit; default anything.
            partitions: 1 to 1024; default 1 for a new topic.
        """
        checked = check_topic(name)
        self._parts.topics.setdefault(checked, None)
        if partitions is not None:
            self._parts.topics[checked] = check_partitions(partitions)
        return Topic(self, self._parts, checked, body)

    @overload
    def consumer(
        self, topics: str | Sequence[str], *, group: str, **options: Unpack[ConsumerOptions]
    ) -> Callable[[F], F]: ...

    @overload
    def consumer(
        self, topics: str | Sequence[str], *, group: str, **options: Unpack[BatchConsumerOptions]
    ) -> Callable[[B], B]: ...

    @hinted_decorator(  # type: ignore[misc] # ConsumerOptions are these without batch
        "@app.consumer needs a topic and a group in parentheses: write"
        ' @app.consumer("orders", group="billing")'
    )
    def consumer(
        self, topics: str | Sequence[str], *, group: str, **options: Unpack[BatchConsumerOptions]
    ) -> Callable[[Any], Any]:
        """Register a handler for one or more topics; the function stays an ordinary one.

        An async function runs in the event loop, a plain one in a thread. It gets the Message, or
        the body where a parameter is annotated with the body's type, or both.

        An attempt fails if the function returns False or a ConsumeResult that says so, raises
        anything, takes longer than `consume_timeout`, or returns None although its annotation
        promises something else (`none_is` overrides that). Every other value commits the message.
        ConsumeResult.retry, .postpone and .dead_letter, returned or raised as Retry, Postpone and
        DeadLetter, choose when it comes again, or that it does not.

        With `batch` the function gets a list of messages, and returns one outcome for all of them,
        or a mapping of message id to outcome.

        Args:
            topics: A topic or several; created if they are not there.
            group: The consumer group; created when a worker starts.
            options: See rqretry.ConsumerOptions, and BatchConsumerOptions for those of `batch`.

        Raises:
            InvalidArgument: A value is outside its limits.
            ConfigError: The function cannot take a message, the group already has a handler for
                this topic, or a worker of this app runs already.
        """
        return self._parts.register(topics, group, options)

    @overload
    def task(self, name: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self, name: str | None = None, **options: Unpack[ConsumerOptions]
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    @hinted
    def task(
        self, name: Callable[P, R] | str | None = None, **options: Unpack[ConsumerOptions]
    ) -> Task[P, R] | Callable[[Callable[P, R]], Task[P, R]]:
        """Make a function a task: `await f.send(...)` has a worker call it.

        Both `@app.task` and `@app.task(...)` work.

        What it returns means nothing: only an exception fails the attempt.

        Args:
            name: Its topic and group; default the function's name.
            options: See rqretry.ConsumerOptions.

        Raises:
            InvalidArgument: A value is outside its limits.
            ConfigError: An annotation cannot be checked, or the name is taken.
        """
        check_options(options, BatchConsumerOptions, "consumer option")
        if callable(name):
            return self._task(name, None, options)
        return hinted(lambda function: self._task(function, name, options))

    def _task(
        self, function: Callable[P, R], name: str | None, options: ConsumerOptions
    ) -> Task[P, R]:
        self._parts.refuse_late("task")
        check_function("task", function)
        chosen = check_topic(getattr(function, "__name__", "") if name is None else name)
        binding = bind_task(function)
        self._parts.registry.add(function, chosen, chosen, options, binding=binding)
        self._parts.topics.setdefault(chosen, None)
        return Task(self, chosen, function, binding)

    @hinted_decorator(
        '@app.cron needs a time: write @app.cron("0 3 * * *") or @app.cron(every="10m")'
    )
    def cron(
        self, line: str | None = None, /, **options: Unpack[ScheduleOptions]
    ) -> Callable[[F], F]:
        """Call a function at certain times: by a cron line, or with `every="10m"`.

        Each slot is one message, published once whoever is up, and retried like any other. The
        function stays an ordinary one. It takes nothing, the Message (whose `scheduled_for` is the
        slot), its body, or both.

        Args:
            line: Minute, hour, day of month, month and day of week, such as "0 3 * * *"; default
                none, with `every` in its place.
            options: See ScheduleOptions and rqretry.ConsumerOptions.

        Raises:
            InvalidArgument: The line, or an option, means nothing.
            ConfigError: The function takes what it cannot get, the name is taken, rqretry[cron] is
                not installed, or a worker of this app runs already.
        """

        @hinted
        def decorate(function: F) -> F:
            self._parts.refuse_late("schedule")
            add_schedule(self._parts, function, line, options)
            return function

        return decorate

    @hinted
    def middleware(self, function: M) -> M:
        """Put an async function around every attempt, the first one outermost.

        Args:
            function: It gets the message and `call_next`, awaits `call_next(message)`, and returns
                what that returned, or another ConsumeResult.

        Raises:
            InvalidArgument: It is not such a function.
        """
        self._parts.hooks.add_middleware(function)
        return function

    @hinted_decorator('@app.on needs an event: write @app.on("dead_letter")')
    def on(self, event: EventName) -> Callable[[C], C]:
        """Call a function, plain or async, with an Event when something happens.

        Args:
            event: "failure", "dead_letter", "lease_lost", "started" or "stopped".

        Raises:
            InvalidArgument: There is no such event.
        """
        self._parts.hooks.check_event(event)

        @hinted
        def decorate(callback: C) -> C:
            self._parts.hooks.add_callback(event, callback)
            return callback

        return decorate

    @hinted_decorator(
        '@app.transaction_checker needs the producer group: write @app.transaction_checker("shop")'
    )
    def transaction_checker(
        self, producer_group: str, **options: Unpack[TransactionCheckerOptions]
    ) -> Callable[[F], F]:
        """Register a function that knows how transactions of a producer group ended.

        A transaction that its producer does not decide is checked back by a worker of this app:
        the function, plain or async, gets a TransactionCheck and answers a TransactionResolution.
        One that raises, takes too long or answers anything else does not know. The options are
        also those of this app's own transactions of the group.

        Args:
            producer_group: As `transaction` was given it.
            options: See TransactionCheckerOptions.

        Raises:
            InvalidArgument: A value is outside its limits.
            ConfigError: The group has a checker already.
        """
        check_group(producer_group)

        @hinted
        def decorate(function: F) -> F:
            self._parts.refuse_late(f"checker of producer group {show(producer_group)}")
            self._parts.checkers.add(function, producer_group, options)
            return function

        return decorate
