"""What the worker and publisher processes of a run do.

What they did is written down by the recorders of the checker, line by line, so that a kill -9 takes
nothing of it.
"""

import asyncio
import json
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rqretry import App, Client, ConsumeResult, Message, OutgoingMessage, RetryPolicy
from rqretry.core.errors import NotConfirmed, PublishError, RqretryError, UnsafeServer
from tests.model.checker.history import HistoryWriter
from tests.model.checker.recording import RecordedClient, recorded

NAMESPACE, TOPIC = "chaos", "t"
VISIBILITY_S = 2.0
_UNTIL_RESOLVED_S = 20.0
_FAILS, _DIES, _SLEEPS = 0.01, 0.002, 0.02
_SINGLE, _FEW = 0.3, 3
"""So often a publisher publishes at most so many messages, in a call each."""
_REFUSED_S = 0.15
"""The pause after a call that did not store everything: Redis is away, or the queue is full."""


def work(order: dict[str, Any]) -> None:
    """A worker process: one handler per group, which notes when it starts and how it ends.

    It does not start while it lacks a right; then it is started again, as a service manager does.
    """
    while True:
        try:
            return asyncio.run(_app(order).run(grace=5.0))
        except UnsafeServer:
            time.sleep(_REFUSED_S)


def _app(order: dict[str, Any]) -> App:
    app = App(order["url"], namespace=NAMESPACE)
    for number in range(order["groups"]):
        app.consumer(
            TOPIC,
            group=f"g{number}",
            visibility=VISIBILITY_S,
            concurrency=16,
            policy=RetryPolicy.fixed("50ms", max_retries=1000),
        )(recorded(Path(order["folder"]))(_in_thread if number % 2 else _in_loop))
    return app


def _plan(message: Message[Any]) -> Any:
    """What a body says; through a gateway it comes as bytes."""
    return json.loads(message.body) if isinstance(message.body, bytes) else message.body


async def _in_loop(message: Message[Any]) -> ConsumeResult:
    await asyncio.sleep(_plan(message)["sleep"])
    return _result(message)


def _in_thread(message: Message[Any]) -> ConsumeResult:
    if _plan(message)["sleep"]:
        time.sleep(_plan(message)["sleep"])
    return _result(message)


def _result(message: Message[Any]) -> ConsumeResult:
    plan = _plan(message)
    if message.attempt <= plan["fails"]:
        return ConsumeResult.failure("as planned")
    return ConsumeResult.dead_letter("as planned") if plan["dies"] else ConsumeResult.SUCCESS


def publish(order: dict[str, Any]) -> None:
    """A publisher process."""
    with Client(order["url"], namespace=NAMESPACE) as client:
        publish_with(client, order)


def publish_with(client: Any, order: dict[str, Any]) -> None:
    """Publish until SIGTERM, and keep a history of its own."""
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    writer, chance = HistoryWriter(Path(order["folder"])), random.Random(order["seed"])
    publisher = _Publisher(RecordedClient(client, writer), order)
    while not stopped:
        began = time.monotonic()
        most = order["batch"] if chance.random() > _SINGLE else _FEW
        messages = publisher.messages(chance, chance.randint(1, most))
        publisher.publish(messages)
        pause = len(messages) / order["rate"] - (time.monotonic() - began)
        if pause > 0:
            time.sleep(pause)


class _Publisher:
    """Publishes batches and single messages, with ids of its own or not."""

    def __init__(self, client: RecordedClient, order: dict[str, Any]) -> None:
        self._client = client
        self._durability = order["durability"] or None
        self._name = order["name"]
        self._own_ids = order["own_ids"]
        self._sent = 0

    def messages(self, chance: random.Random, count: int) -> list[OutgoingMessage]:
        """Some messages; their bodies say what the handler is to do."""
        made = []
        for _ in range(count):
            self._sent += 1
            body = {
                "n": f"{self._name}.{self._sent}",
                "sleep": chance.uniform(0.001, 0.1) if chance.random() < _SLEEPS else 0,
                "fails": chance.randint(1, 2) if chance.random() < _FAILS else 0,
                "dies": chance.random() < _DIES,
            }
            id_ = f"{self._name}.{self._sent}" if self._own_ids else None
            made.append(OutgoingMessage(body=body, id=id_, durability=self._durability))
        return made

    def publish(self, messages: list[OutgoingMessage]) -> None:
        """Publish them; what has an id of its own again and again until it is stored."""
        end = time.monotonic() + _UNTIL_RESOLVED_S
        for part in _parts(messages):
            left = part
            while left and time.monotonic() < end:
                unsure = self._call(left)
                left = [message for message in left if message.id in unsure]

    def _call(self, messages: list[OutgoingMessage]) -> set[str]:
        """One call; the own ids that are not known to be stored."""
        asked = {message.id for message in messages if message.id}
        try:
            if len(messages) == 1:
                (one,) = messages
                self._client.publish(TOPIC, one.body, id=one.id, durability=one.durability)
            else:
                self._client.publish_many(TOPIC, messages)
        except PublishError as error:
            time.sleep(_REFUSED_S)
            return {*error.ambiguous, *error.failed}
        except NotConfirmed:  # all of them are stored
            return set()
        except RqretryError:  # the queue is full, or Redis is away
            time.sleep(_REFUSED_S)
            return asked
        return set()


def _parts(messages: list[OutgoingMessage]) -> Iterator[list[OutgoingMessage]]:
    """Now and then single calls."""
    if len(messages) <= _FEW:
        for message in messages:
            yield [message]
    elif messages:
        yield messages


ROLES: dict[str, Callable[[dict[str, Any]], None]] = {"work": work, "publish": publish}
