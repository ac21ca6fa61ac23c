"""The application: where handlers are registered, and where they publish from."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from importlib import import_module
from typing import Any, TypeVar, Unpack

from rqretry.checks.server_checks import require_safe_server
from rqretry.client import LEAST_TIMEOUT_S, AsyncAdmin, AsyncClient, Client
from rqretry.consumer.declared import Declared
from rqretry.consumer.decorators import Decorators
from rqretry.consumer.registry import MAX_CONCURRENCY
from rqretry.consumer.transaction_checker import TransactionOptions
from rqretry.core.durations import Duration, seconds
from rqretry.core.errors import ConfigError, RqretryError, end_at_caller, refuse, show
from rqretry.core.limits import check_count, check_flag
from rqretry.core.message import PublishOptions
from rqretry.core.message_id import MessageId
from rqretry.core.parts import parts_of
from rqretry.core.public_call import hinted
from rqretry.core.redact import Redact, use
from rqretry.core.settings import Settings
from rqretry.producer.publisher import Publisher
from rqretry.producer.transaction import AsyncTransaction
from rqretry.transport.session import REPEAT_SECONDS
from rqretry.worker.stop_signals import run_until_stopped
from rqretry.worker.worker import GRACE_S, Worker

Either = TypeVar("Either", Client, AsyncClient)


Lifespan = Callable[["App"], AbstractAsyncContextManager[Any]]
Given = tuple[str | None, str | None, str | Sequence[Duration] | None]
"""The URL, the namespace and the level table that the code names."""
Kinds = tuple[Callable[..., Client], Callable[..., AsyncClient]]
"""What makes clients; a lab has its own."""


class AppClients:
    """The clients of an app on one server, made when they are first used.

    Attributes:
        given: What the code, or `configure`, names; None: it is the environment's.
        kinds: What makes them.
        settings: The server and the namespace.
        sync: The client without asyncio, once it is made.
        asyncio: The asyncio client, once it is made.
        publisher: What that one publishes with.
    """

    def __init__(self, given: Given, kinds: Kinds) -> None:
        self.given, self.kinds = given, kinds
        self.settings = Settings.read(*given)
        self.sync: Client | None = None
        self.asyncio: AsyncClient | None = None
        self.publisher: Publisher | None = None
        self.lock = threading.Lock()

    def taken(self) -> tuple[Client | None, AsyncClient | None]:
        """Those that are made, to be closed; the next ones are new."""
        with self.lock:
            taken = self.sync, self.asyncio
            self.sync = self.asyncio = self.publisher = None
            return taken


class AppParts(Declared):
    """What an app is made of: what it declares, its clients, and how it is run.

    Attributes:
        clients: On the server that it uses now.
        include: Modules that register more consumers.
        living: The lifespan around what a worker does; it closes the app's connections at its end.
    """

    def __init__(
        self,
        clients: AppClients,
        include: Sequence[str],
        patience_s: float,
        *,
        only_declared: bool,
        living: Callable[[], AbstractAsyncContextManager[None]],
    ) -> None:
        super().__init__()
        self.clients, self.include, self.living = clients, include, living
        self._patience_s, self._only_declared = patience_s, only_declared

    @property
    def settings(self) -> Settings:
        """The server and the namespace."""
        return self.clients.settings

    def client(self) -> Client:
        """The client without asyncio."""
        clients = self.clients
        with clients.lock:
            if clients.sync is None:
                clients.sync = self._made(clients.kinds[0])
            return clients.sync

    def async_client(self) -> AsyncClient:
        """The asyncio client."""
        clients = self.clients
        if clients.asyncio is None:
            clients.asyncio = self._made(clients.kinds[1])
            clients.publisher = parts_of(clients.asyncio).publisher
        return clients.asyncio

    def _made(self, kind: Callable[..., Either]) -> Either:
        url, namespace, levels = self.clients.given
        client = kind(url, namespace=namespace, delay_levels=levels, timeout=self._patience_s)
        parts = parts_of(client)
        parts.catalog.topics.declared = self.topics
        parts.catalog.topics.only_declared = self._only_declared
        parts.checkers = self.checkers
        return client

    def worker(
        self,
        *,
        concurrency: int | None = None,
        grace: float = GRACE_S,
        explicit: bool = True,
    ) -> Worker:
        """A worker for this app's consumers, those of `include` too; see Worker."""
        for module in self.include:
            _import(module)
        worker = Worker(
            self.settings,
            self.consumers,
            concurrency=concurrency,
            grace=grace,
            explicit=explicit,
            hooks=self.hooks,
            declared=self.topics,
            checkers=self.checkers,
        )
        worker.schedules = self.schedules
        worker.serving = partial(self.serving, self.count)
        return worker


class App(Decorators[AppParts]):
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
            Default none.
        redact: A function from text to text without secrets, for what reaches failure records, logs
            and spans, of the whole process; passwords, tokens and credentials in URLs are taken
            out before it in any case. Default none.

    Attributes:
        state: What the lifespan yielded; None outside of it.

    Raises:
        ConfigError: The URL cannot work as it is written.
        InvalidArgument: A value is outside its limits.
        StoreUnavailable, AmbiguousResult: Of every call to the server: see `timeout`.
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
        redact: Redact | None = None,
    ) -> None:
        if redact is not None:
            _redact_with(redact)
        modules = _modules(include)
        if lifespan is not None and not callable(lifespan):
            refuse("lifespan", lifespan, "must be an async context manager function")
        patience = seconds(timeout, name="timeout", minimum=LEAST_TIMEOUT_S)
        clients = AppClients((url, namespace, delay_levels), (Client, AsyncClient))
        only_declared = not check_flag("create_topics", create_topics)
        self._parts = AppParts(
            clients, modules, patience, only_declared=only_declared, living=self._living
        )
        self._lifespan = lifespan
        self.state: Any = None

    @hinted
    def configure(self, url: str | None = None, namespace: str | None = None) -> None:
        """Use another server or namespace than the code names; before the first publish.

        The command line does this for `--url` and `--namespace`.
        """
        old_url, old_namespace, levels = self._parts.clients.given
        given = url or old_url, namespace or old_namespace, levels
        self._parts.clients = AppClients(given, self._parts.clients.kinds)

    # -- running -----------------------------------------------------------------------------

    @hinted
    async def run(
        self, *, concurrency: int | None = None, grace: Duration = GRACE_S, signals: bool = True
    ) -> None:
        """Run a worker in this process, until it is cancelled or (with `signals`) gets a signal.

        Args:
            concurrency: Attempts at once per consumer; default each consumer's own.
            grace: How long running handlers may go on when it stops; default 25 s.
            signals: Stop on SIGTERM and SIGINT; False if the process is somebody else's.

        Raises:
            InvalidArgument: A value is outside its limits.
            ConfigError: There are no consumers, or one does not fit its group.
            UnsafeServer: Messages could be lost on the server; see `rqretry doctor`.
            RqretryError: Handlers that timed out do not end: end this process, too.
        """
        if concurrency is not None:
            check_count(concurrency, name="concurrency", maximum=MAX_CONCURRENCY)
        grace_s, signals = seconds(grace, name="grace"), check_flag("signals", signals)
        async with self._living():
            worker = self._parts.worker(concurrency=concurrency, grace=grace_s)
            settings = self._parts.settings
            await asyncio.to_thread(require_safe_server, settings.url, settings.namespace)
            await run_until_stopped(worker, signals=signals)
        if worker.needs_replacement:
            raise RqretryError(
                "handlers that timed out do not end, and only the end of this process ends them:"
                " let it end, and start another; `rqretry worker` does so by itself"
            )

    @asynccontextmanager
    async def _living(self) -> AsyncIterator[None]:
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
        return self._parts.client()

    @property
    def async_client(self) -> AsyncClient:
        """The asyncio client that `publish` uses."""
        return self._parts.async_client()

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
            parts = self._parts
            publisher = parts.clients.publisher or parts_of(parts.async_client()).publisher
            return await publisher.publish(topic, body, options)
        except RqretryError as error:
            end_at_caller(error)
            raise

    @hinted
    async def publish_many(
        self, topic: str, messages: Iterable[Any], *, durability: str | None = None
    ) -> list[MessageId]:
        """Publish any number of bodies or OutgoingMessages; see Client.publish_many."""
        return await self.async_client.publish_many(topic, messages, durability=durability)

    def publish_sync(self, topic: str, body: Any, **options: Unpack[PublishOptions]) -> MessageId:
        """`publish` without asyncio."""
        try:
            return self.client.publish(topic, body, **options)
        except RqretryError as error:
            end_at_caller(error)
            raise

    @hinted
    def publish_many_sync(
        self, topic: str, messages: Iterable[Any], *, durability: str | None = None
    ) -> list[MessageId]:
        """`publish_many` without asyncio."""
        return self.client.publish_many(topic, messages, durability=durability)

    @hinted
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
        client, async_client = self._parts.clients.taken()
        if async_client is not None:
            await async_client.aclose()
        if client is not None:
            client.close()

    def __repr__(self) -> str:
        settings, count = self._parts.settings, len(self._parts.consumers)
        return f"<App {settings.url.safe} namespace {settings.namespace}, {count} consumers>"


def _import(module: str) -> None:
    try:
        import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise  # it imports something else that is not there
        raise ConfigError(
            f"include names {show(module)}, and there is no module {show(error.name)}: correct it,"
            " or start Python where it is found"
        ) from None


def _modules(include: object) -> list[str]:
    names = [include] if isinstance(include, str) else include
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        refuse("include", include, 'must be the names of modules, such as ["shop.billing"]')
    return list(names)


def _redact_with(redact: Any) -> None:
    if not callable(redact):
        refuse("redact", redact, "must be a function from text to text")
    use(redact)
