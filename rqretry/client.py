"""The clients: the public verbs, sync and asyncio, over the same operations."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar, Unpack

from rqretry.admin import (
    consistency,
    create_group,
    messages,
    promote_purge_reset,
    queries,
    reasons,
)
from rqretry.admin import dead_letters as dead_letter_verbs
from rqretry.admin import groups as group_verbs
from rqretry.admin import schedules as schedule_verbs
from rqretry.admin import topics as topic_verbs
from rqretry.admin import transactions as transaction_verbs
from rqretry.admin.context import AdminContext
from rqretry.consumer.client_parts import ClientParts
from rqretry.consumer.options import SimpleConsumerOptions
from rqretry.consumer.simple_consumer import (
    AsyncSimpleConsumer,
    SimpleConsumer,
)
from rqretry.consumer.transaction_checker import TransactionOptions
from rqretry.core.closing import AsyncClosing, Closing
from rqretry.core.durations import Duration, seconds
from rqretry.core.errors import RqretryError, end_at_caller
from rqretry.core.limits import check_flag, check_topic
from rqretry.core.message import PublishOptions, durable
from rqretry.core.message_id import MessageId
from rqretry.core.public_call import hinted
from rqretry.core.settings import Settings
from rqretry.producer import periodic
from rqretry.producer.publisher import Publisher
from rqretry.producer.publisher_sync import SyncPublisher
from rqretry.producer.transaction import AsyncTransaction, Transaction, TransactionOperations
from rqretry.protocol.facade import AsyncFacade, SyncFacade, Verb
from rqretry.transport.session import REPEAT_SECONDS
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

S = TypeVar("S", bound=Store | SyncStore)
P = TypeVar("P")

LEAST_TIMEOUT_S = 0.01


class _AdminVerbs:
    topics = Verb(topic_verbs.topics)
    create_topic = Verb(topic_verbs.create_topic)
    groups = Verb(group_verbs.groups)
    group = Verb(group_verbs.group)
    create_group = Verb(create_group.create_group)
    set_group = Verb(group_verbs.set_group)
    stats = Verb(queries.stats)
    message = Verb(queries.message)
    dead_letters = Verb(dead_letter_verbs.dead_letters)
    redrive = Verb(dead_letter_verbs.redrive)
    purge = Verb(promote_purge_reset.purge)
    promote = Verb(promote_purge_reset.promote)
    dead_letter = Verb(promote_purge_reset.dead_letter)
    reset = Verb(promote_purge_reset.reset)
    export = Verb(dead_letter_verbs.export)
    set_topic = Verb(topic_verbs.set_topic)
    delete_topic = Verb(topic_verbs.delete_topic)
    pause = Verb(group_verbs.pause)
    resume = Verb(group_verbs.resume)
    unsubscribe = Verb(group_verbs.unsubscribe)
    delete_group = Verb(group_verbs.delete_group)
    workers = Verb(queries.workers)
    inflight = Verb(queries.inflight)
    messages = Verb(messages.messages)
    reasons = Verb(reasons.reasons)
    timeline = Verb(queries.timeline)
    explain = Verb(queries.explain)
    find = Verb(queries.find)
    remembered = Verb(queries.remembered)
    audit = Verb(queries.audit)
    transactions = Verb(transaction_verbs.transactions)
    transaction = Verb(transaction_verbs.transaction)
    commit_transaction = Verb(transaction_verbs.commit_transaction)
    rollback_transaction = Verb(transaction_verbs.rollback_transaction)
    schedules = Verb(schedule_verbs.schedules)
    schedule = Verb(schedule_verbs.schedule)
    pause_schedule = Verb(schedule_verbs.pause_schedule)
    resume_schedule = Verb(schedule_verbs.resume_schedule)
    delete_schedule = Verb(schedule_verbs.delete_schedule)
    trigger = Verb(periodic.trigger)
    fsck = Verb(consistency.fsck)


class Admin(_AdminVerbs, SyncFacade[AdminContext]):
    """The operators' verbs, as `Client.admin`.

    Raises:
        InvalidArgument: Of every verb: a value is outside its limits; nothing was asked or done.
        StoreUnavailable: Of every verb: the server does not answer, for the client's `timeout`.
        AmbiguousResult: Of those that change something: it may be done; it is safe to repeat.
    """


class AsyncAdmin(_AdminVerbs, AsyncFacade[AdminContext]):
    """The methods of `Admin`, awaited, as `AsyncClient.admin` and `App.admin`; see Admin."""


class _Client(ABC, Generic[S, P]):
    @hinted
    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str | None = None,
        delay_levels: str | Sequence[Duration] | None = None,
        create_topics: bool = True,
        timeout: Duration = REPEAT_SECONDS,
    ) -> None:
        settings = Settings.read(url, namespace, delay_levels)
        patience = seconds(timeout, name="timeout", minimum=LEAST_TIMEOUT_S)
        self._parts = self._made(settings)
        self._parts.catalog.topics.only_declared = not check_flag("create_topics", create_topics)
        store = self._parts.store
        store.repeat_seconds = patience
        store.reply_seconds = min(store.reply_seconds, patience)

    @abstractmethod
    def _made(self, settings: Settings) -> ClientParts[S, P]: ...

    def _transaction(
        self, topic: str, group: str | None, options: TransactionOptions
    ) -> TransactionOperations:
        parts = self._parts
        terms = parts.checkers.terms(check_topic(topic), group, options)
        return TransactionOperations(parts.encoder, terms, parts.name)

    def __repr__(self) -> str:
        url, namespace = self._parts.settings.url.safe, self._parts.settings.namespace
        return f"<{type(self).__name__} {url} namespace {namespace}>"


class Client(_Client[SyncStore, SyncPublisher], Closing):
    """rqretry without asyncio: for scripts, Django, Flask, and sync handlers.

    Thread- and fork-safe; a context manager.

    Args:
        url: The server; default RQRETRY_REDIS_URL, else redis://localhost:6379/0.
        namespace: Default RQRETRY_NAMESPACE, else "default".
        delay_levels: The level table of the namespace, such as "1s 5s 10s"; set when it is first
            used. Default RQRETRY_DELAY_LEVELS, else the namespace's own, else RocketMQ's 18.
        create_topics: False: publishing to a topic that is not there raises TopicNotFound, so that
            a misspelt name creates none; default True.
        timeout: How long a call is repeated while the server does not answer, 10 ms or more;
            default 15 s. Then it raises StoreUnavailable, or AmbiguousResult if it may be done.

    Raises:
        ConfigError: The URL cannot work as it is written.
        InvalidArgument: A value is outside its limits.
        StoreUnavailable, AmbiguousResult: Of every call to the server: see `timeout`.
    """

    def _made(self, settings: Settings) -> ClientParts[SyncStore, SyncPublisher]:
        return ClientParts(settings, SyncStore(settings.url), SyncPublisher)

    @property
    def admin(self) -> Admin:
        """The operators' verbs."""
        return Admin(self._parts.store, self._parts.operator)

    def publish(self, topic: str, body: Any, **options: Unpack[PublishOptions]) -> MessageId:
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
            return self._parts.publisher.publish(topic, body, options)
        except RqretryError as error:
            end_at_caller(error)
            raise

    @hinted
    def publish_many(
        self, topic: str, messages: Iterable[Any], *, durability: str | None = None
    ) -> list[MessageId]:
        """Publish any number of bodies or OutgoingMessages, in bounded calls.

        Args:
            topic: The topic.
            messages: Bodies or OutgoingMessages.
            durability: Of all that name none of their own; see PublishOptions. Default the
                primary's memory.

        Raises:
            InvalidArgument, MessageTooLarge, CodecError: One of them cannot be published; nothing
                was written.
            PublishError: A part was not stored; it says which ids are where.
            NotConfirmed: All are stored, some not as durably as was asked for.
        """
        return self._parts.publisher.publish_many(topic, durable(messages, durability))

    @hinted
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
        return Transaction(self._parts.store, self._transaction(topic, producer_group, options))

    @hinted
    def recall(self, id: str, topic: str | None = None) -> bool:  # noqa: A002 - the contract
        """Cancel a message that was published with a delay and is not due yet.

        Args:
            id: The message's id.
            topic: Its topic; default wherever it is found.

        Returns:
            True: no group will ever get it. False: too late, it is due or was not scheduled, or was
            delivered and is gone.

        Raises:
            MessageNotFound: Nothing is stored under this id, and no history has its delivery.
            TopicNotFound: There is no such topic.
        """
        return self._parts.store.perform(self._parts.recall(id, topic))

    @hinted
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
        return SimpleConsumer(self._parts.store, self._parts.receiver(topics, group, options))

    def close(self) -> None:
        """Close the connections."""
        self._parts.publisher.close()
        self._parts.store.close()


class AsyncClient(_Client[Store, Publisher], AsyncClosing):
    """rqretry with asyncio; its arguments and verbs are those of Client, see there."""

    def _made(self, settings: Settings) -> ClientParts[Store, Publisher]:
        return ClientParts(settings, Store(settings.url), Publisher)

    @property
    def admin(self) -> AsyncAdmin:
        """The operators' verbs, to await."""
        return AsyncAdmin(self._parts.store, self._parts.operator)

    async def publish(self, topic: str, body: Any, **options: Unpack[PublishOptions]) -> MessageId:
        """Publish one message; see Client.publish."""
        try:
            return await self._parts.publisher.publish(topic, body, options)
        except RqretryError as error:
            end_at_caller(error)
            raise

    @hinted
    async def publish_many(
        self, topic: str, messages: Iterable[Any], *, durability: str | None = None
    ) -> list[MessageId]:
        """Publish any number of bodies or OutgoingMessages; see Client.publish_many."""
        return await self._parts.publisher.publish_many(topic, durable(messages, durability))

    @hinted
    def transaction(
        self,
        topic: str,
        *,
        producer_group: str | None = None,
        **options: Unpack[TransactionOptions],
    ) -> AsyncTransaction:
        """Messages that no group sees until all are committed; see Client.transaction."""
        return AsyncTransaction(
            self._parts.store, self._transaction(topic, producer_group, options)
        )

    @hinted
    async def recall(self, id: str, topic: str | None = None) -> bool:  # noqa: A002 - the contract
        """Cancel a message that was published with a delay and is not due; see Client.recall."""
        return await self._parts.store.perform(self._parts.recall(id, topic))

    @hinted
    def simple_consumer(
        self,
        topics: str | Sequence[str],
        *,
        group: str,
        **options: Unpack[SimpleConsumerOptions],
    ) -> AsyncSimpleConsumer:
        """A consumer that receives and acknowledges by hand; see Client.simple_consumer."""
        return AsyncSimpleConsumer(self._parts.store, self._parts.receiver(topics, group, options))

    async def aclose(self) -> None:
        """Send what is waiting to be sent, and close the connections."""
        await self._parts.publisher.aclose()
        await self._parts.store.aclose()
