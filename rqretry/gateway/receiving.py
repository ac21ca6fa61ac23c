"""ReceiveMessage: a stream that ends with the first messages, or when nothing has come."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from rqretry.core.catalog_records import PUSH
from rqretry.core.errors import GroupNotFound, TopicNotFound
from rqretry.core.limits import MAX_RECEIVE
from rqretry.core.message import Message
from rqretry.gateway.codes import OK, Code, Refused, status
from rqretry.gateway.groups import MOST_POLLS, GroupReader, Groups, Poll
from rqretry.gateway.leases import VISIBILITY_S, Leases
from rqretry.gateway.messages import incoming
from rqretry.gateway.operations import PushOperations, give_back, on_behalf
from rqretry.gateway.policies import LONG_POLLING_S, check_invisible, tags_of
from rqretry.gateway.protocol import seconds_of, set_seconds, v2
from rqretry.gateway.requests import Caller, Names
from rqretry.transport.store import Store

_LONGEST_POLL_S = 20 * 60.0
_MARGIN_S, _MARGIN = 0.3, 0.1
"""How long before its client stops waiting a poll is answered, and in parts of the time that it
waits: where thousands came late together, they do not all end in the last moment."""


class Receiving:
    """Deliveries to consumers."""

    def __init__(self, names: Names, store: Store, groups: Groups, leases: Leases) -> None:
        self._names = names
        self._store = store
        self._groups = groups
        self._leases = leases
        self._open = 0
        """Receives that wait."""

    async def receive_message(self, request: Any, caller: Caller) -> AsyncIterator[Any]:
        """A status, then the messages, then when they were sent."""
        group = self._names.group(request.group)
        topic = self._names.topic(request.message_queue.topic, source=True)
        if caller.client.kind == "" and request.auto_renew:
            caller.client.kind = PUSH
        poll = self._poll(request, caller)
        tags = tags_of(request.filter_expression) if request.HasField("filter_expression") else None
        if self._open >= MOST_POLLS:
            raise Refused(
                Code.TOO_MANY_REQUESTS, f"{MOST_POLLS} receives are waiting: try again later"
            )
        self._open += 1
        try:
            reader = await self._groups.reader(caller.client, group, topic, tags)
            messages = await self._wait(reader, poll)
        finally:
            self._open -= 1
        if not messages:
            yield v2.ReceiveMessageResponse(status=status(Code.MESSAGE_NOT_FOUND))
            return
        operations = on_behalf(reader.operations, caller.client.worker)
        sent = False
        try:
            if request.auto_renew and isinstance(operations, PushOperations):
                record = await self._groups.record(group)
                self._leases.hold(caller.client, operations, record, messages)
            async for part in _parts(messages, poll.duration_ms / 1000):
                yield part
            sent = True
        finally:
            if not sent:  # the stream broke
                self._leases.drop(message.receipt_handle for message in messages)
                back = give_back(self._store, operations, messages, caller.client.worker)
                self._groups.slots.later(back)

    async def _wait(self, reader: GroupReader, poll: Poll) -> list[Message[Any]]:
        try:
            return await reader.receive(poll)
        except (GroupNotFound, TopicNotFound):
            self._groups.drop(reader)
            raise

    def _poll(self, request: Any, caller: Caller) -> Poll:
        most = min(request.batch_size, MAX_RECEIVE)
        if most < 1:
            raise Refused(Code.BAD_REQUEST, f"batch_size {request.batch_size} must be 1 or more")
        duration_s = VISIBILITY_S
        if not request.auto_renew:
            duration_s = seconds_of(request.invisible_duration)
            check_invisible(duration_s)
        wait_s = LONG_POLLING_S if caller.remaining_s is None else caller.remaining_s
        if request.HasField("long_polling_timeout"):
            wait_s = seconds_of(request.long_polling_timeout)
            if not 0 <= wait_s <= _LONGEST_POLL_S:
                raise Refused(
                    Code.ILLEGAL_POLLING_TIME,
                    f"long_polling_timeout {wait_s:g} s must be from 0 to {_LONGEST_POLL_S:g} s",
                )
        if caller.remaining_s is not None:
            margin_s = max(_MARGIN_S, _MARGIN * caller.remaining_s)
            wait_s = min(wait_s, caller.remaining_s - margin_s)
        until = time.monotonic() + max(0.0, wait_s)
        return Poll(caller.client, most, round(duration_s * 1000), until)


async def _parts(messages: list[Message[Any]], invisible_s: float) -> AsyncIterator[Any]:
    yield v2.ReceiveMessageResponse(status=OK)
    for message in messages:
        yield v2.ReceiveMessageResponse(message=incoming(message, invisible_s))
    await asyncio.sleep(0)  # a cancelled call ends here
    end = v2.ReceiveMessageResponse()
    set_seconds(end.delivery_timestamp, time.time_ns() / 1_000_000_000)
    yield end
