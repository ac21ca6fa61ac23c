"""SendMessage and RecallMessage."""

from collections.abc import Awaitable, Callable
from typing import Any

from rqretry.client import AsyncClient
from rqretry.core.errors import (
    InvalidArgument,
    MessageIdTaken,
    MessageNotFound,
    MessageTooLarge,
    PublishError,
    show,
)
from rqretry.core.limits import check_message_id
from rqretry.core.message import OutgoingMessage
from rqretry.gateway.codes import OK, Code, Refused, checked, overall, status_of
from rqretry.gateway.messages import Type, outgoing, type_of
from rqretry.gateway.protocol import v2
from rqretry.gateway.requests import Caller, Names

Prepare = Callable[[str, OutgoingMessage, Any, Caller], Awaitable[Any]]
"""Stores a half message; see Transactions.prepare."""
MOST_MESSAGES = 1024
"""In one SendMessage."""


class Sending:
    """Publishing for producers."""

    def __init__(self, names: Names, client: AsyncClient, prepare: Prepare) -> None:
        self._names = names
        self._client = client
        self._prepare = prepare

    async def send_message(self, request: Any, caller: Caller) -> Any:
        """Publish one message or several of one topic; each has a result of its own."""
        messages = list(request.messages)
        if not 1 <= len(messages) <= MOST_MESSAGES:
            raise Refused(
                Code.BAD_REQUEST, f"{len(messages)} messages: send from 1 to {MOST_MESSAGES}"
            )
        topics = {self._names.topic(message.topic) for message in messages}
        if len(topics) > 1:
            raise Refused(Code.BAD_REQUEST, "the messages are of several topics: send one's")
        topic, kinds = topics.pop(), [type_of(message) for message in messages]
        items = [outgoing(message) for message in messages]
        if len({item.id for item in items}) < len(items):
            raise Refused(Code.ILLEGAL_MESSAGE_ID, "two of the messages have the same id")
        caller.client.topics.add(topic)
        if Type.TRANSACTION in kinds:
            if len(items) > 1:
                raise Refused(Code.BAD_REQUEST, "a transaction's message is sent alone")
            entries = [await self._prepare(topic, items[0], messages[0], caller)]
        else:
            entries = await self._publish(topic, items)
        return v2.SendMessageResponse(
            status=overall(one.status for one in entries), entries=entries
        )

    async def _publish(self, topic: str, items: list[OutgoingMessage]) -> list[Any]:
        try:
            if len(items) > 1:
                return await self._publish_many(topic, items)
            return [entry(items[0], await self._client.publish(topic, items[0]))]
        except (MessageIdTaken, MessageTooLarge):
            raise
        except InvalidArgument as error:  # all else was checked before
            raise Refused(Code.ILLEGAL_DELIVERY_TIME, str(error)) from None

    async def _publish_many(self, topic: str, items: list[OutgoingMessage]) -> list[Any]:
        try:
            await self._client.publish_many(topic, items)
        except PublishError as error:
            done = set(error.done)
            failed = status_of(error.first or error)
            return [
                entry(item) if item.id in done else v2.SendResultEntry(status=failed)
                for item in items
            ]
        return [entry(item) for item in items]

    async def recall_message(self, request: Any, _caller: Caller) -> Any:
        """Cancel a message that is not due yet."""
        topic = self._names.topic(request.topic)
        id_ = checked(Code.BAD_REQUEST, check_message_id, request.recall_handle)
        try:
            cancelled = await self._client.recall(id_, topic)
        except MessageNotFound as error:
            return v2.RecallMessageResponse(status=status_of(error))
        if not cancelled:
            raise Refused(
                Code.BAD_REQUEST,
                f"message {show(id_)} cannot be recalled: it is due, or had no delivery time",
            )
        return v2.RecallMessageResponse(status=OK, message_id=id_)


def entry(item: OutgoingMessage, id_: str | None = None) -> Any:
    """The result of a message that is stored; its id is the recall handle if it is delayed."""
    made = v2.SendResultEntry(status=OK, message_id=id_ or item.id or "")
    if item.deliver_at is not None:
        made.recall_handle = made.message_id
    return made
