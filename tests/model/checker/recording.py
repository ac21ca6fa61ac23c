"""Recorders around the public API: publishers, simple consumers and handlers that write down a run.

writer = HistoryWriter(directory)
client = RecordedClient(Client(url, namespace="test"), writer)
client.publish("orders", {"n": 1})

@app.consumer("orders", group="billing")
@recorded(directory)
async def bill(message: Message) -> ConsumeResult: ...
"""

import functools
import hashlib
import inspect
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from rqretry import (
    AmbiguousResult,
    AsyncClient,
    Client,
    ConsumeResult,
    InvalidReceiptHandle,
    Message,
    NotConfirmed,
    OutgoingMessage,
    RqretryError,
)
from rqretry.core.consume_result import HandlerSignal, Outcome
from rqretry.core.errors import PublishError
from rqretry.core.message_id import MessageId
from tests.model.checker.history import (
    EFFECTS,
    FAIL,
    INFO,
    OK,
    HistoryWriter,
    LineFile,
    process_name,
)

H = TypeVar("H", bound=Callable[..., Any])

TOKEN_HEADER = "checker"
"""The header that carries a token: the journal finds by it what a lost answer would have named."""


def make_token(id_: str | None = None) -> str:
    """A name for one publish, found again in the stored message.

    The same one for the same caller-given id: a repeated publish must have the same content.
    """
    digits = hashlib.blake2b(id_.encode(), digest_size=8).hexdigest() if id_ else None
    return f"ct-{digits or os.urandom(8).hex()}"


_TEXT = 200
"""What is kept of what an error says."""


class _Publish:
    """One call of publish or publish_many, and what is to be written about it."""

    def __init__(self, writer: HistoryWriter, topic: str, items: Iterable[Any]) -> None:
        self.writer = writer
        self.messages = [
            item if isinstance(item, OutgoingMessage) else OutgoingMessage(body=item)
            for item in items
        ]
        tokens = [make_token(message.id) for message in self.messages]
        self.numbers = writer.invoke(
            "publish",
            [
                {
                    "topic": topic, "token": token, "tier_wanted": message.durability or "memory",
                    **({"id": message.id, "given": True} if message.id else {}),
                }
                for token, message in zip(tokens, self.messages, strict=True)
            ],
        )  # fmt: skip
        self.messages = [
            replace(message, headers={**(message.headers or {}), TOKEN_HEADER: token})
            for token, message in zip(tokens, self.messages, strict=True)
        ]

    def done(self, ids: Sequence[MessageId]) -> None:
        """All are published."""
        ended = {
            number: {"id": str(id_), "duplicate": id_.duplicate, "tier_confirmed": id_.durability}
            for number, id_ in zip(self.numbers, ids, strict=True)
        }
        self.writer.complete(OK, ended)

    def failed(self, error: BaseException) -> None:
        """The call raised; what that means for each message is in the kind of the error."""
        if isinstance(error, PublishError):
            self._split(error)
        elif isinstance(error, NotConfirmed):  # stored, with less than was asked for
            self._named(OK, error.ids, {"tier_confirmed": "memory", "confirmed": False}, error)
        elif isinstance(error, AmbiguousResult):
            self._named(INFO, error.ids, {}, error)
        elif isinstance(error, RqretryError):
            self._named(FAIL, (), {}, error)
        else:  # a bug, or the end of the program: nobody knows
            self._named(INFO, (), {}, error)

    def _named(
        self, outcome: str, ids: Sequence[str], fields: dict[str, Any], error: BaseException
    ) -> None:
        named = len(ids) == len(self.numbers)
        ended = {
            number: {
                "error": type(error).__name__,
                "text": str(error)[:_TEXT],
                **fields,
                **({"id": ids[i]} if named else {}),
            }
            for i, number in enumerate(self.numbers)
        }
        self.writer.complete(outcome, ended)

    def _split(self, error: PublishError) -> None:
        """A part was stored: which of several messages has which id only their tokens know."""
        rest = list(self.numbers)
        for outcome, ids in ((OK, error.done), (FAIL, error.failed), (INFO, error.ambiguous)):
            ended = {}
            for id_ in ids:
                given = [m.id for m in self.messages]
                number = self.numbers[given.index(id_)] if id_ in given else None
                number = rest[0] if number is None or number not in rest else number
                rest.remove(number)
                ended[number] = {"error": type(error).__name__, "id": str(id_), "token": ""}
                if outcome == OK:
                    ended[number]["tier_confirmed"] = getattr(id_, "durability", "memory")
            if ended:
                self.writer.complete(outcome, ended)


class RecordedClient:
    """A Client whose publishes are written down; `client` is the real one."""

    def __init__(self, client: Client, writer: HistoryWriter) -> None:
        self.client, self.writer = client, writer

    def publish(self, topic: str, body: Any, **options: Any) -> MessageId:
        """Client.publish; raises what that raises."""
        call = _Publish(self.writer, topic, [OutgoingMessage(body=body, **options)])
        try:
            id_ = self.client.publish(topic, call.messages[0])
        except BaseException as error:
            call.failed(error)
            raise
        call.done([id_])
        return id_

    def publish_many(self, topic: str, items: Iterable[Any]) -> list[MessageId]:
        """Client.publish_many; raises what that raises."""
        call = _Publish(self.writer, topic, items)
        try:
            ids = self.client.publish_many(topic, call.messages)
        except BaseException as error:
            call.failed(error)
            raise
        call.done(ids)
        return ids

    def ack(self, consumer: Any, message: Message[Any]) -> None:
        """SimpleConsumer.ack of one message; raises what that raises."""
        fields = {"topic": message.topic, "group": message.group, "id": message.id}
        receipt = {"lease_no": message.fencing_token}
        (number,) = self.writer.invoke("ack", [{**fields, **receipt}])
        try:
            consumer.ack(message)
        except InvalidReceiptHandle:
            self.writer.complete(FAIL, {number: {"error": "InvalidReceiptHandle"}})
            raise
        except BaseException as error:
            self.writer.complete(INFO, {number: {"error": type(error).__name__}})
            raise
        self.writer.complete(OK, {number: {}})


class RecordedAsyncClient:
    """An AsyncClient (or App) whose publishes are written down; `client` is the real one."""

    def __init__(self, client: AsyncClient, writer: HistoryWriter) -> None:
        self.client, self.writer = client, writer

    async def publish(self, topic: str, body: Any, **options: Any) -> MessageId:
        """AsyncClient.publish; raises what that raises."""
        call = _Publish(self.writer, topic, [OutgoingMessage(body=body, **options)])
        try:
            id_ = await self.client.publish(topic, call.messages[0])
        except BaseException as error:
            call.failed(error)
            raise
        call.done([id_])
        return id_

    async def publish_many(self, topic: str, items: Iterable[Any]) -> list[MessageId]:
        """AsyncClient.publish_many; raises what that raises."""
        call = _Publish(self.writer, topic, items)
        try:
            ids = await self.client.publish_many(topic, call.messages)
        except BaseException as error:
            call.failed(error)
            raise
        call.done(ids)
        return ids


def recorded(directory: Path) -> Callable[[H], H]:
    """Decorate a handler that takes one Message: each attempt is in the effects table.

    It must answer with a ConsumeResult, an exception, or a value that is a success.
    """
    table = LineFile(directory / EFFECTS)

    def decorate(handler: H) -> H:
        @functools.wraps(handler)
        async def in_loop(message: Message[Any]) -> Any:
            table.append([_start(message)])
            try:
                answer = await handler(message)
            except BaseException as error:
                table.append([_end(message, error)])
                raise
            table.append([_end(message, answer)])
            return answer

        @functools.wraps(handler)
        def in_thread(message: Message[Any]) -> Any:
            table.append([_start(message)])
            try:
                answer = handler(message)
            except BaseException as error:
                table.append([_end(message, error)])
                raise
            table.append([_end(message, answer)])
            return answer

        chosen: Any = in_loop if inspect.iscoroutinefunction(handler) else in_thread
        return chosen  # type: ignore[no-any-return] # wraps keeps the signature

    return decorate


def _about(message: Message[Any]) -> dict[str, Any]:
    return {
        "topic": message.topic, "group": message.group, "id": message.id,
        "lease_no": message.fencing_token, "proc": process_name(), "at_ns": time.time_ns(),
    }  # fmt: skip


def _start(message: Message[Any]) -> dict[str, Any]:
    return {"e": "start", "attempt": message.attempt, **_about(message)}


def _end(message: Message[Any], answer: object) -> dict[str, Any]:
    result = answer.result if isinstance(answer, HandlerSignal) else answer
    outcome, chosen = "success", False
    if isinstance(result, ConsumeResult):
        outcome = result.outcome.name.lower()
        chosen = (
            result.delay_ms is not None
            or result.level != 0
            or result.outcome is Outcome.DEAD_LETTER
        )
    elif isinstance(result, BaseException):
        outcome = "raised"
    elif result is False:
        outcome = "failure"
    return {"e": "end", "outcome": outcome, "chosen": chosen, **_about(message)}
