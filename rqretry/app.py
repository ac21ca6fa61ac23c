"""The application: where handlers are registered, and where they publish from."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from importlib import import_module
from typing import Any, ParamSpec, TypeVar, Unpack, overload

from rqretry.checks.server_checks import require_safe_server
from rqretry.client import LEAST_TIMEOUT_S, AsyncAdmin, AsyncClient, Client
from rqretry.consumer.handler_binding import bind_task
from rqretry.consumer.options import AnyOptions, BatchConsumerOptions, ConsumerOptions
from rqretry.consumer.periodic import PeriodicHandlers
from rqretry.consumer.registry import ConsumerSpec
from rqretry.consumer.task import Task
from rqretry.consumer.transaction_checker import (
    Checkers,
    TransactionCheckerOptions,
    TransactionOptions,
)
from rqretry.consumer.typed_topic import BatchHandler, Topic
from rqretry.core.durations import Duration, seconds
from rqretry.core.errors import ConfigError, RqretryError, end_at_caller, show
from rqretry.core.limits import check_flag, check_group, check_partitions, check_topic
from rqretry.core.message import PublishOptions
from rqretry.core.message_id import MessageId
from rqretry.core.middleware import Callback, EventName, Hooks, Middleware
from rqretry.core.settings import Settings
from rqretry.core.suggestion import hinted
from rqretry.producer.transaction import AsyncTransaction
from rqretry.transport.session import REPEAT_SECONDS
from rqretry.worker.stop_signals import run_until_stopped
from rqretry.worker.worker import GRACE_S, Worker

Either = TypeVar("Either", Client, AsyncClient)
F = TypeVar("F", bound=Callable[..., Any])
B = TypeVar("B", bound=BatchHandler[Any])
M = TypeVar("M", bound=Middleware)
C = TypeVar("C", bound=Callback)
T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")

Lifespan = Callable[["App"], AbstractAsyncContextManager[Any]]


class App(PeriodicHandlers):
    """Consumers and a publisher on one namespace of one server. Making one does no I/O.

    Args:
        url: The server; default RQRETRY_REDIS_URL, else redis://localhost:6379/0.
        namespace: Default RQRETRY_NAMESPACE, else "default".
        delay_levels: The level table of the namespace, such as "1s 5s 10s"; set when it is first
            used. Default RQRETRY_DELAY_LEVELS, else the namespace's own, else RocketMQ's 18.
        include: Modules that register more consumers; a worker imports them.
        create_topics: False: publishing to a topic that is neither there nor declared, as `topic`
            and `task` do, raises TopicNotFound, so that a misspelt name creates none; default True.
            A worker creates the topics of its consumers in any case.
        timeout: How long a publish and every other call of this program (not a worker's) is
            repeated while the server does not answer, 10 ms or more; default 15 s.
        lifespan: An async context manager function that gets the app, entered in each worker
            process before the first message and left after the last; its value is `app.state`.

    Attributes:
        state: What the lifespan yielded; None outside of it.
        hooks: Middleware and callbacks.
        declared: Topics declared with `topic`, and how many partitions each is to have.
        create_topics: Whether publishing creates others.
        checkers: What `@app.transaction_checker` registered.
        schedules: What `@app.cron` registered.

    Raises:
        ConfigError: The URL cannot work as it is written.
        InvalidArgument: The namespace or the level table is outside its limits.
    """

    @hinted
    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str | None = None,
        delay_levels: str | Sequence[Duration] | None = None,
        include: Sequence[str] = (),
        create_topics: bool = True,
        timeout: Duration = REPEAT_SECONDS,
        lifespan: Lifespan | None = None,
    ) -> None:
        super().__init__()
        self.settings = Settings.read(url, namespace, delay_levels)
        self.include = [include] if isinstance(include, str) else list(include)
        self.state: Any = None
        self.hooks = Hooks()
        self.create_topics = check_flag("create_topics", create_topics)
        self._lifespan = lifespan
        self._given = (url, namespace, delay_levels)
        self._timeout = seconds(timeout, name="timeout", minimum=LEAST_TIMEOUT_S)
        self.checkers = Checkers()
        self._client: Client | None = None
        self._async_client: AsyncClient | None = None
        self._kinds: tuple[Callable[..., Client], Callable[..., AsyncClient]]
        self._kinds = Client, AsyncClient
        """What makes clients; a lab has its own."""
        self._lock = threading.Lock()

    @property
    def consumers(self) -> list[ConsumerSpec]:
        """What `@app.consumer`, `@app.task` and `@app.cron` registered."""
        return self._registry.consumers

    @property
    def named_url(self) -> str | None:
        """The URL that the code, or `configure`, names; None: it is the environment's."""
        return self._given[0]

    def configure(self, url: str | None = None, namespace: str | None = None) -> None:
        """Use another server or namespace than the code names; before the first publish.

        The command line does this for `--url` and `--namespace`.
        """
        old_url, old_namespace, levels = self._given
        self._given = (url or old_url, namespace or old_namespace, levels)
        self.settings = Settings.read(*self._given)
        self._client = self._async_client = None

    # -- registering -------------------------------------------------------------------------

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
        self.declared.setdefault(checked, None)
        if partitions is not None:
            self.declared[checked] = check_partitions(partitions)
        return Topic(self, checked, body)

    @overload
    def consumer(
        self, topics: str | Sequence[str], *, group: str, **options: Unpack[ConsumerOptions]
    ) -> Callable[[F], F]: ...

    @overload
    def consumer(
        self, topics: str | Sequence[str], *, group: str, **options: Unpack[BatchConsumerOptions]
    ) -> Callable[[B], B]: ...

    @hinted  # type: ignore[misc] # ConsumerOptions are these without batch
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
        return self.register(topics, group, options)

    def register(
        self,
        topics: str | Sequence[str],
        group: str,
        options: AnyOptions,
        *,
        body_type: Any = None,
    ) -> Callable[[F], F]:
        """The decorator behind `consumer`, for topics with a body type too."""

        def decorate(handler: F) -> F:
            self._refuse_late(f"handler of group {show(group)}")
            self._registry.add(handler, topics, group, options, body_type=body_type)
            return handler

        return decorate

    @overload
    def task(self, name: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self, name: str | None = None, **options: Unpack[ConsumerOptions]
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...

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
        if callable(name):
            return self._task(name, None, options)
        return lambda function: self._task(function, name, options)

    def _task(
        self, function: Callable[P, R], name: str | None, options: ConsumerOptions
    ) -> Task[P, R]:
        self._refuse_late("task")
        chosen = check_topic(getattr(function, "__name__", "") if name is None else name)
        binding = bind_task(function)
        self._registry.add(function, chosen, chosen, options, binding=binding)
        self.declared.setdefault(chosen, None)
        return Task(self, chosen, function, binding)

    def middleware(self, function: M) -> M:
        """Put an async function (message, call_next) around every attempt, the first outermost."""
        self.hooks.add_middleware(function)
        return function

    def on(self, event: EventName) -> Callable[[C], C]:
        """Call a function, plain or async, with an Event when something happens.

        Args:
            event: "failure", "dead_letter", "lease_lost", "started" or "stopped".

        Raises:
            InvalidArgument: There is no such event.
        """
        self.hooks.check_event(event)

        def decorate(callback: C) -> C:
            self.hooks.add_callback(event, callback)
            return callback

        return decorate

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

        def decorate(function: F) -> F:
            self._refuse_late(f"checker of producer group {show(producer_group)}")
            self.checkers.add(function, producer_group, options)
            return function

        return decorate

    # -- running -----------------------------------------------------------------------------

    def worker(
        self,
        *,
        concurrency: int | None = None,
        grace: float = GRACE_S,
        explicit: bool = True,
    ) -> Worker:
        """A worker for this app's consumers, those of `include` too; see Worker."""
        for module in self.include:
            import_module(module)
        worker = Worker(
            self.settings,
            self.consumers,
            concurrency=concurrency,
            grace=grace,
            explicit=explicit,
            hooks=self.hooks,
            declared=self.declared,
            checkers=self.checkers,
        )
        worker.schedules = self.schedules
        worker.serving = partial(self._serving, self._registered)
        return worker

    @property
    def _registered(self) -> int:
        return len(self.consumers) + len(self.checkers.specs)

    @contextmanager
    def _serving(self, known: int) -> Iterator[None]:
        """Around the run of a worker that was made when so many were registered."""
        if known != self._registered:
            raise ConfigError(
                "handlers were registered after the worker was made, which would never serve them:"
                " register all of them before, as where the module is imported"
            )
        self._workers += 1
        try:
            yield
        finally:
            self._workers -= 1

    async def run(
        self, *, concurrency: int | None = None, grace: float = GRACE_S, signals: bool = True
    ) -> None:
        """Run a worker in this process, until it is cancelled or (with `signals`) gets a signal.

        Args:
            concurrency: Attempts at once per consumer; default each consumer's own.
            grace: Seconds that running handlers get when it stops.
            signals: Stop on SIGTERM and SIGINT; False if the process is somebody else's.

        Raises:
            ConfigError: There are no consumers, or one does not fit its group.
            UnsafeServer: Messages could be lost on the server; see `rqretry doctor`.
            RqretryError: Handlers that timed out do not end: end this process, too.
        """
        async with self.living():
            worker = self.worker(concurrency=concurrency, grace=grace)
            await asyncio.to_thread(require_safe_server, self.settings.url, self.settings.namespace)
            await run_until_stopped(worker, signals=signals)
        if worker.needs_replacement:
            raise RqretryError(
                "handlers that timed out do not end, and only the end of this process ends them:"
                " let it end, and start another; `rqretry worker` does so by itself"
            )

    @asynccontextmanager
    async def living(self) -> AsyncIterator[None]:
        """The lifespan around what a worker does; closes the app's connections at its end."""
        try:
            if self._lifespan is None:
                yield
            else:
                async with self._lifespan(self) as self.state:
                    yield
        finally:
            self.state = None
            await self.aclose()

    # -- publishing --------------------------------------------------------------------------

    @property
    def client(self) -> Client:
        """The same app without asyncio: for sync handlers, Django, Flask; thread- and fork-safe."""
        with self._lock:
            if self._client is None:
                self._client = self._made(self._kinds[0])
            return self._client

    @property
    def async_client(self) -> AsyncClient:
        """The asyncio client that `publish` uses."""
        if self._async_client is None:
            self._async_client = self._made(self._kinds[1])
        return self._async_client

    def _made(self, kind: Callable[..., Either]) -> Either:
        url, namespace, levels = self._given
        client = kind(url, namespace=namespace, delay_levels=levels, timeout=self._timeout)
        client.catalog.topics.declared = self.declared
        client.catalog.topics.only_declared = not self.create_topics
        client.checkers = self.checkers
        return client

    @property
    def admin(self) -> AsyncAdmin:
        """The operator's verbs, for asyncio."""
        return self.async_client.admin

    async def publish(self, topic: str, body: Any, **options: Unpack[PublishOptions]) -> MessageId:
        """Publish one message for every group of a topic, which is created if it is not there.

        Args:
            topic: The topic.
            body: A JSON-compatible value, or raw bytes; at most 4 MiB.
            options: Each by its name:
                tag (str): What subscriptions filter by; default none.
                keys (str, or at most 16 of them): Business keys to find it by; default none.
                headers (dict of str to str): User properties; default none.
                message_group (str, at most 63 bytes): Handled one at a time and in order by ordered
                    groups; default none. Not with a delay.
                delay (seconds, or text such as "90s"): Deliver after this, at most 40 days.
                delay_level (int): The same as a level of the namespace's table, 1 the shortest.
                deliver_at (datetime with a time zone, or seconds since the epoch): Deliver then. At
                    most one of these three; default at once.
                id (str): Your own id; the same with the same content is stored once. Default new.
                durability ("replica:1" or more, or "disk"): What must have it before this returns,
                    within 3 s; default the primary's memory.

        Returns:
            The id; `.duplicate` says whether it was published before.

        Raises:
            InvalidArgument, MessageTooLarge, CodecError: Nothing was written.
            AmbiguousResult: It may be stored; publish again with `id=error.id`.
            StoreUnavailable, QueueFull: Nothing was written.
            TopicNotFound: There is no such topic, and `create_topics` is False.
            NotConfirmed: It is stored, but not as durably as was asked for.
        """
        try:
            client = self._async_client or self.async_client
            return await client.publisher.publish(topic, body, options)
        except RqretryError as error:
            end_at_caller(error)
            raise

    async def publish_many(
        self, topic: str, messages: Iterable[Any], *, durability: str | None = None
    ) -> list[MessageId]:
        """Publish any number of bodies or OutgoingMessages; see Client.publish_many."""
        try:
            return await self.async_client.publish_many(topic, messages, durability=durability)
        except RqretryError as error:
            end_at_caller(error)
            raise

    def publish_sync(self, topic: str, body: Any, **options: Unpack[PublishOptions]) -> MessageId:
        """`publish` without asyncio."""
        try:
            return self.client.publish(topic, body, **options)
        except RqretryError as error:
            end_at_caller(error)
            raise

    def publish_many_sync(
        self, topic: str, messages: Iterable[Any], *, durability: str | None = None
    ) -> list[MessageId]:
        """`publish_many` without asyncio."""
        try:
            return self.client.publish_many(topic, messages, durability=durability)
        except RqretryError as error:
            end_at_caller(error)
            raise

    def transaction(
        self,
        topic: str,
        *,
        producer_group: str | None = None,
        **options: Unpack[TransactionOptions],
    ) -> AsyncTransaction:
        """Messages that no group sees until all are committed; see Client.transaction."""
        client = self.async_client
        return client.transaction(topic, producer_group=producer_group, **options)

    async def aclose(self) -> None:
        """Send what is waiting to be sent, and close the connections; using it opens new ones."""
        with self._lock:
            async_client, self._async_client = self._async_client, None
            client, self._client = self._client, None
        if async_client is not None:
            await async_client.aclose()
        if client is not None:
            client.close()

    def __repr__(self) -> str:
        url, count = self.settings.url.safe, len(self.consumers)
        return f"<App {url} namespace {self.settings.namespace}, {count} consumers>"
