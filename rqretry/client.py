"""The clients: the public verbs, sync and asyncio, over the same operations."""

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from rqretry.admin import consistency, promote_purge_reset, queries, topics_and_groups
from rqretry.admin import dead_letters as dead_letter_verbs
from rqretry.admin import transactions as transaction_verbs
from rqretry.admin.context import AdminContext
from rqretry.catalog.catalog import Catalog
from rqretry.consumer.simple_consumer import (
    AsyncSimpleConsumer,
    SimpleConsumer,
    SimpleConsumerOptions,
    simple_operations,
)
from rqretry.consumer.transaction_checker import Checkers, TransactionOptions
from rqretry.core.durations import Duration
from rqretry.core.limits import check_topic
from rqretry.core.message import PublishOptions, durable
from rqretry.core.message_id import MessageId
from rqretry.core.settings import Settings
from rqretry.core.worker_name import worker_name
from rqretry.producer.cancel import recall
from rqretry.producer.encode import Encoder
from rqretry.producer.publisher import Publisher
from rqretry.producer.publisher_sync import SyncPublisher
from rqretry.producer.transaction import AsyncTransaction, Transaction, TransactionOperations
from rqretry.protocol.command import Performer, SyncPerformer, awaitable, blocking
from rqretry.protocol.scripts import ScriptLibrary
from rqretry.transport.store import Store
from rqretry.transport.store_sync import SyncStore

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncClient",
    "AsyncSimpleConsumer",
    "Client",
    "SimpleConsumer",
]


class Admin:
    """The operators' API; see AdminOperations for each method."""

    def __init__(self, store: SyncPerformer, operations: AdminContext) -> None:
        self.store = store
        self.operations = operations

    topics = blocking(topics_and_groups.topics)
    create_topic = blocking(topics_and_groups.create_topic)
    groups = blocking(topics_and_groups.groups)
    group = blocking(topics_and_groups.group)
    set_group = blocking(topics_and_groups.set_group)
    stats = blocking(queries.stats)
    message = blocking(queries.message)
    dead_letters = blocking(dead_letter_verbs.dead_letters)
    redrive = blocking(dead_letter_verbs.redrive)
    purge = blocking(promote_purge_reset.purge)
    promote = blocking(promote_purge_reset.promote)
    reset = blocking(promote_purge_reset.reset)
    export = blocking(dead_letter_verbs.export)
    set_topic = blocking(topics_and_groups.set_topic)
    delete_topic = blocking(topics_and_groups.delete_topic)
    pause = blocking(topics_and_groups.pause)
    resume = blocking(topics_and_groups.resume)
    unsubscribe = blocking(topics_and_groups.unsubscribe)
    delete_group = blocking(topics_and_groups.delete_group)
    workers = blocking(queries.workers)
    inflight = blocking(queries.inflight)
    timeline = blocking(queries.timeline)
    explain = blocking(queries.explain)
    find = blocking(queries.find)
    remembered = blocking(queries.remembered)
    audit = blocking(queries.audit)
    transactions = blocking(transaction_verbs.transactions)
    transaction = blocking(transaction_verbs.transaction)
    commit_transaction = blocking(transaction_verbs.commit_transaction)
    rollback_transaction = blocking(transaction_verbs.rollback_transaction)
    fsck = blocking(consistency.fsck)


class AsyncAdmin:
    """The operators' API for asyncio; see AdminOperations for each method."""

    def __init__(self, store: Performer, operations: AdminContext) -> None:
        self.store = store
        self.operations = operations

    topics = awaitable(topics_and_groups.topics)
    create_topic = awaitable(topics_and_groups.create_topic)
    groups = awaitable(topics_and_groups.groups)
    group = awaitable(topics_and_groups.group)
    set_group = awaitable(topics_and_groups.set_group)
    stats = awaitable(queries.stats)
    message = awaitable(queries.message)
    dead_letters = awaitable(dead_letter_verbs.dead_letters)
    redrive = awaitable(dead_letter_verbs.redrive)
    purge = awaitable(promote_purge_reset.purge)
    promote = awaitable(promote_purge_reset.promote)
    reset = awaitable(promote_purge_reset.reset)
    export = awaitable(dead_letter_verbs.export)
    set_topic = awaitable(topics_and_groups.set_topic)
    delete_topic = awaitable(topics_and_groups.delete_topic)
    pause = awaitable(topics_and_groups.pause)
    resume = awaitable(topics_and_groups.resume)
    unsubscribe = awaitable(topics_and_groups.unsubscribe)
    delete_group = awaitable(topics_and_groups.delete_group)
    workers = awaitable(queries.workers)
    inflight = awaitable(queries.inflight)
    timeline = awaitable(queries.timeline)
    explain = awaitable(queries.explain)
    find = awaitable(queries.find)
    remembered = awaitable(queries.remembered)
    audit = awaitable(queries.audit)
    transactions = awaitable(transaction_verbs.transactions)
    transaction = awaitable(transaction_verbs.transaction)
    commit_transaction = awaitable(transaction_verbs.commit_transaction)
    rollback_transaction = awaitable(transaction_verbs.rollback_transaction)
    fsck = awaitable(consistency.fsck)


class Client:
    """rqretry without asyncio: for scripts, Django, Flask, and sync handlers.

    Thread- and fork-safe; a context manager.

    Args:
        url: The server; default RQRETRY_REDIS_URL, else redis://localhost:6379/0.
        namespace: Default RQRETRY_NAMESPACE, else "default".
        delay_levels: The level table of the namespace, such as "1s 5s 10s"; set when it is first
            used. Default RQRETRY_DELAY_LEVELS, else the namespace's own, else RocketMQ's 18.

    Raises:
        ConfigError: The URL cannot work as it is written.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str | None = None,
        delay_levels: str | Sequence[Duration] | None = None,
        library: ScriptLibrary | None = None,
        store: SyncStore | None = None,
    ) -> None:
        settings = Settings.read(url, namespace, delay_levels)
        self.settings = settings
        self.name = worker_name()
        self.store = store or SyncStore(settings.url, library)
        self.checkers = Checkers()
        self.catalog = Catalog(settings.namespace, settings.levels, self.name)
        self.encoder = Encoder(self.catalog, self.store.clock)
        self.publisher = SyncPublisher(self.store, self.encoder)
        self.admin = Admin(self.store, AdminContext(self.catalog, self.name))

    def publish(self, topic: str, body: Any, **options: Unpack[PublishOptions]) -> MessageId:
        """Publish one message for every group of a topic (created if it is not there).

        Args:
            topic: The topic.
            body: A JSON-compatible value, or raw bytes; at most 4 MiB.
            options: See PublishOptions.

        Returns:
            The id; `.duplicate` says whether it was published before.

        Raises:
            InvalidArgument, MessageTooLarge, CodecError: Nothing was written.
            AmbiguousResult: It may be stored; publish again with `id=error.id`.
            StoreUnavailable, QueueFull: Nothing was written.
            NotConfirmed: It is stored, but not as durably as was asked for.
        """
        return self.publisher.publish(topic, body, options)

    def publish_many(
        self, topic: str, messages: Iterable[Any], *, durability: str | None = None
    ) -> list[MessageId]:
        """Publish any number of bodies or OutgoingMessages, in bounded calls.

        Args:
            topic: The topic.
            messages: Bodies or OutgoingMessages.
            durability: Of all that name none of their own; see PublishOptions.

        Raises:
            InvalidArgument, MessageTooLarge, CodecError: One of them cannot be published; nothing
                was written.
            PublishError: A part was not stored; it says which ids are where.
            NotConfirmed: All are stored, some not as durably as was asked for.
        """
        return self.publisher.publish_many(topic, durable(messages, durability))

    def transaction(
        self,
        topic: str,
        *,
        producer_group: str | None = None,
        **options: Unpack[TransactionOptions],
    ) -> Transaction:
        """Messages that no group sees until all of them are committed.

        `with client.transaction(...) as tx: tx.publish(...)` commits at its end, and rolls back
        when the block raises. Nothing is sent before the first message.

        Args:
            topic: Where `tx.publish` publishes to; created if it is not there.
            producer_group: Whose checker is asked if this program never decides; default the name
                of the topic.
            options: See TransactionOptions.

        Raises:
            InvalidArgument: A value is outside its limits.
        """
        terms = self.checkers.terms(check_topic(topic), producer_group, options)
        operations = TransactionOperations(self.encoder, terms, self.name)
        return Transaction(self.store, operations)

    def recall(self, id: str, topic: str | None = None) -> bool:  # noqa: A002 - the contract
        """Cancel a message that was published with a delay and is not due yet.

        Args:
            id: The message's id.
            topic: Its topic; default wherever it is found.

        Returns:
            True: no group will ever get it. False: too late, it is due or was not scheduled.

        Raises:
            MessageNotFound: Nothing is stored under this id.
            TopicNotFound: There is no such topic.
        """
        return self.store.perform(recall(self.catalog, id, topic, worker=self.name))

    def simple_consumer(
        self,
        topics: str | Sequence[str],
        *,
        group: str,
        **options: Unpack[SimpleConsumerOptions],
    ) -> SimpleConsumer:
        """A consumer that receives and acknowledges by hand.

        Args:
            topics: A topic or several; they must be there.
            group: The consumer group.
            options: See SimpleConsumerOptions.

        Raises:
            GroupNotFound: The group is not there, and `create_group` is False.
            TopicNotFound: A topic is not there.
            InvalidArgument: A value is outside its limits.
            ConfigError: The group is of another kind.
        """
        operations = simple_operations(self.catalog, self.name, topics, group, **options)
        return SimpleConsumer(self.store, operations)

    def close(self) -> None:
        """Close the connections."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client {self.settings.url.safe} namespace {self.settings.namespace}>"


class AsyncClient:
    """rqretry with asyncio; the arguments and verbs are those of Client."""

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str | None = None,
        delay_levels: str | Sequence[Duration] | None = None,
        library: ScriptLibrary | None = None,
        store: Store | None = None,
    ) -> None:
        settings = Settings.read(url, namespace, delay_levels)
        self.settings = settings
        self.name = worker_name()
        self.store = store or Store(settings.url, library)
        self.checkers = Checkers()
        self.catalog = Catalog(settings.namespace, settings.levels, self.name)
        self.encoder = Encoder(self.catalog, self.store.clock)
        self.publisher = Publisher(self.store, self.encoder)
        self.admin = AsyncAdmin(self.store, AdminContext(self.catalog, self.name))

    async def publish(self, topic: str, body: Any, **options: Unpack[PublishOptions]) -> MessageId:
        """Publish one message; see Client.publish."""
        return await self.publisher.publish(topic, body, options)

    async def publish_many(
        self, topic: str, messages: Iterable[Any], *, durability: str | None = None
    ) -> list[MessageId]:
        """Publish any number of bodies or OutgoingMessages; see Client.publish_many."""
        return await self.publisher.publish_many(topic, durable(messages, durability))

    def transaction(
        self,
        topic: str,
        *,
        producer_group: str | None = None,
        **options: Unpack[TransactionOptions],
    ) -> AsyncTransaction:
        """Messages that no group sees until all are committed; see Client.transaction."""
        terms = self.checkers.terms(check_topic(topic), producer_group, options)
        operations = TransactionOperations(self.encoder, terms, self.name)
        return AsyncTransaction(self.store, operations)

    async def recall(self, id: str, topic: str | None = None) -> bool:  # noqa: A002 - the contract
        """Cancel a message that was published with a delay and is not due; see Client.recall."""
        return await self.store.perform(recall(self.catalog, id, topic, worker=self.name))

    def simple_consumer(
        self,
        topics: str | Sequence[str],
        *,
        group: str,
        **options: Unpack[SimpleConsumerOptions],
    ) -> AsyncSimpleConsumer:
        """A consumer that receives and acknowledges by hand; see Client.simple_consumer."""
        operations = simple_operations(self.catalog, self.name, topics, group, **options)
        return AsyncSimpleConsumer(self.store, operations)

    async def aclose(self) -> None:
        """Send what is waiting to be sent, and close the connections."""
        await self.publisher.aclose()
        await self.store.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<AsyncClient {self.settings.url.safe} namespace {self.settings.namespace}>"
