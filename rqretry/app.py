"""The application: where handlers are registered, and where they publish from."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from rqretry.client import AsyncAdmin, AsyncClient, Client
from rqretry.config import Settings
from rqretry.durations import Duration
from rqretry.ids import MessageId
from rqretry.policy import RetryPolicy
from rqretry.registry import (
    CONSUME_TIMEOUT_S,
    MAX_POSTPONES,
    VISIBILITY_S,
    ConsumerSpec,
    Registry,
)

F = TypeVar("F", bound=Callable[..., Any])


class App:
    """Consumers and a publisher on one namespace of one server. Making one does no I/O.

    Args:
        url: The server; default RQRETRY_REDIS_URL, else redis://localhost:6379/0.
        namespace: Default RQRETRY_NAMESPACE, else "default".
        delay_levels: The level table of the namespace, such as "1s 5s 10s"; set when it is first
            used. Default RQRETRY_DELAY_LEVELS, else the namespace's own, else RocketMQ's 18.

    Raises:
        ConfigError: The URL cannot work as it is written.
        InvalidArgument: The namespace or the level table is outside its limits.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str | None = None,
        delay_levels: str | Sequence[Duration] | None = None,
    ) -> None:
        self.settings = Settings.read(url, namespace, delay_levels)
        self._given = (url, namespace, delay_levels)
        self._registry = Registry()
        self._client: Client | None = None
        self._async_client: AsyncClient | None = None
        self._lock = threading.Lock()

    @property
    def consumers(self) -> Sequence[ConsumerSpec]:
        """What `@app.consumer` registered."""
        return self._registry.consumers

    def configure(self, url: str | None = None, namespace: str | None = None) -> None:
        """Use another server or namespace than the code says; before the first publish.

        The command line does this for `--url` and `--namespace`.
        """
        old_url, old_namespace, levels = self._given
        self._given = (url or old_url, namespace or old_namespace, levels)
        self.settings = Settings.read(*self._given)
        self._client = self._async_client = None

    def consumer(
        self,
        topics: str | Sequence[str],
        *,
        group: str,
        max_retries: int | str | None = None,
        policy: RetryPolicy | None = None,
        concurrency: int | None = None,
        visibility: Duration = VISIBILITY_S,
        consume_timeout: Duration = CONSUME_TIMEOUT_S,
        max_postpones: int = MAX_POSTPONES,
        none_is: str | None = None,
    ) -> Callable[[F], F]:
        """Register a handler for one or more topics; the function stays an ordinary one.

        An async function runs in the event loop, a plain one in a thread. It gets the Message and
        answers as semantics.md section 2 says.

        Args:
            topics: A topic or several; created if they are not there.
            group: The consumer group; created when a worker starts.
            max_retries: 0 or more, or "unlimited"; at most max_retries + 1 deliveries. Not given:
                the group's own, 16 at first.
            policy: When a failed message is tried again. Not given: the group's own, RocketMQ's
                ladder at first.
            concurrency: Attempts at once in one process; default 64 for async, 16 for threads.
            visibility: The lease, 0.1 s to 12 h, renewed while the handler runs; default 30 s. A
                killed worker's messages are delivered again when it ends.
            consume_timeout: When a running attempt has failed, counted from its lease; default
                15 min.
            max_postpones: How often one message may be postponed before that counts as a
                failure; default 1000.
            none_is: "failure" or "success"; default by the handler's annotation.

        Raises:
            InvalidArgument: A value is outside its limits.
            ConfigError: The function cannot take a message, or the group already has a handler
                for this topic.
        """

        def register(handler: F) -> F:
            self._registry.add(
                handler,
                topics,
                group=group,
                max_retries=max_retries,
                policy=policy,
                concurrency=concurrency,
                visibility=visibility,
                consume_timeout=consume_timeout,
                max_postpones=max_postpones,
                none_is=none_is,
            )
            return handler

        return register

    @property
    def client(self) -> Client:
        """The same app without asyncio: for sync handlers, Django, Flask; thread- and fork-safe."""
        with self._lock:
            if self._client is None:
                url, namespace, levels = self._given
                self._client = Client(url, namespace=namespace, delay_levels=levels)
            return self._client

    @property
    def async_client(self) -> AsyncClient:
        """The asyncio client that `publish` uses."""
        if self._async_client is None:
            url, namespace, levels = self._given
            self._async_client = AsyncClient(url, namespace=namespace, delay_levels=levels)
        return self._async_client

    @property
    def admin(self) -> AsyncAdmin:
        """The operator's verbs, for asyncio."""
        return self.async_client.admin

    async def publish(
        self,
        topic: str,
        body: Any,
        *,
        tag: str | None = None,
        keys: str | Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        delay: Duration | None = None,
        delay_level: int | None = None,
        id: str | None = None,  # noqa: A002 - the name of the contract
    ) -> MessageId:
        """Publish one message; see Client.publish."""
        return await self.async_client.publish(
            topic,
            body,
            tag=tag,
            keys=keys,
            headers=headers,
            delay=delay,
            delay_level=delay_level,
            id=id,
        )

    async def publish_many(self, topic: str, messages: Iterable[Any]) -> list[MessageId]:
        """Publish any number of bodies or OutgoingMessages; see Client.publish_many."""
        return await self.async_client.publish_many(topic, messages)

    async def aclose(self) -> None:
        """Send what is waiting to be sent, and close the connections."""
        if self._async_client is not None:
            await self._async_client.aclose()
        if self._client is not None:
            self._client.close()

    def __repr__(self) -> str:
        place, count = self.settings.url.safe, len(self.consumers)
        return f"<App {place} namespace {self.settings.namespace}, {count} consumers>"
