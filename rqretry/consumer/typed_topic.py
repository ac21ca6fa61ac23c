"""A declared topic: a name with a body type, and the verbs that use it."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar, Unpack, overload

from rqretry.consumer.declared import Declared
from rqretry.consumer.options import (
    BatchConsumerOptions,
    ConsumerOptions,
)
from rqretry.consumer.task import Publishes
from rqretry.core.batch_result import BatchReturn
from rqretry.core.message import Message, OutgoingMessage, PublishOptions, outgoing, several
from rqretry.core.message_id import MessageId
from rqretry.core.public_call import hinted, hinted_decorator
from rqretry.core.typed_body import fitting, packed, plain

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
BatchHandler = Callable[[list[Message[T]]], BatchReturn | Awaitable[BatchReturn]]
"""What `consumer(..., batch=...)` decorates."""
B = TypeVar("B", bound=BatchHandler[Any])


class PublishesMany(Publishes, Protocol):
    """What a topic needs of its app."""

    async def publish_many(
        self, topic: str, messages: Iterable[Any], *, durability: str | None = None
    ) -> list[MessageId]:
        """Publish many of them."""

    def publish_many_sync(
        self, topic: str, messages: Iterable[Any], *, durability: str | None = None
    ) -> list[MessageId]:
        """`publish_many` without asyncio."""


class Topic(Generic[T]):
    """A topic of an app with bodies of one type; made by `app.topic`.

    Attributes:
        name: The topic.
        body: The type that its bodies fit; None for anything.

    Raises:
        InvalidArgument: Of every call: a value is outside its limits; nothing was written.
        StoreUnavailable, AmbiguousResult: Of every publish: see App, `timeout`.
    """

    def __init__(self, app: PublishesMany, declared: Declared, name: str, body: Any) -> None:
        self._app = app
        self._declared = declared
        self.name = name
        self.body = body
        self._fit = None if body is None else fitting(body)

    @overload
    def consumer(self, *, group: str, **options: Unpack[ConsumerOptions]) -> Callable[[F], F]: ...

    @overload
    def consumer(
        self, *, group: str, **options: Unpack[BatchConsumerOptions]
    ) -> Callable[[B], B]: ...

    @hinted_decorator(  # type: ignore[misc] # ConsumerOptions are these without batch
        '@topic.consumer needs a group in parentheses: write @topic.consumer(group="billing")'
    )
    def consumer(
        self, *, group: str, **options: Unpack[BatchConsumerOptions]
    ) -> Callable[[Any], Any]:
        """Register a handler for this topic; see App.consumer."""
        return self._declared.register(self.name, group, options, body_type=self.body)

    @hinted
    async def publish(
        self, body: T | OutgoingMessage, **options: Unpack[PublishOptions]
    ) -> MessageId:
        """Publish one message; see Client.publish. Raises BodyMismatch too."""
        return await self._app.publish(self.name, self.checked(outgoing(body, options)))

    @hinted
    async def publish_many(
        self, bodies: Iterable[T | OutgoingMessage], *, durability: str | None = None
    ) -> list[MessageId]:
        """Publish any number of them, in bounded calls.

        Args:
            bodies: Bodies or OutgoingMessages.
            durability: Of all that name none of their own; see PublishOptions. Default the
                primary's memory.

        Raises:
            BodyMismatch: A consumer could not read one of them; nothing was written.
        """
        items = [self.checked(body) for body in several(bodies)]
        return await self._app.publish_many(self.name, items, durability=durability)

    @hinted
    def publish_sync(
        self, body: T | OutgoingMessage, **options: Unpack[PublishOptions]
    ) -> MessageId:
        """`publish` without asyncio."""
        return self._app.publish_sync(self.name, self.checked(outgoing(body, options)))

    @hinted
    def publish_many_sync(
        self, bodies: Iterable[T | OutgoingMessage], *, durability: str | None = None
    ) -> list[MessageId]:
        """`publish_many` without asyncio."""
        items = [self.checked(body) for body in several(bodies)]
        return self._app.publish_many_sync(self.name, items, durability=durability)

    @hinted
    def checked(self, item: T | OutgoingMessage) -> Any:
        """What can be published later, as plain values.

        Args:
            item: A body, or one in an OutgoingMessage.

        Raises:
            BodyMismatch, CodecError: Consumers could not read it.
        """
        if isinstance(item, OutgoingMessage):
            return replace(item, body=self._plain(item.body))
        return self._plain(item)

    def _plain(self, body: Any) -> Any:
        if self._fit is None:
            return plain(body)
        values = body if isinstance(body, bytes | bytearray) else packed(body)
        self._fit(values)
        return values

    def __repr__(self) -> str:
        return f"<Topic {self.name}>"
