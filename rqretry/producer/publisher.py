"""The asyncio publisher: one lane per partition; concurrent publishes share its next call."""

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from rqretry.core.errors import AmbiguousResult, RqretryError
from rqretry.core.limits import check_topic
from rqretry.core.message import PublishOptions, outgoing
from rqretry.core.message_id import MessageId
from rqretry.observability import observer
from rqretry.producer.chunk import Room, chunks, next_call, room_in
from rqretry.producer.encode import (
    Addressed,
    Encoder,
    LaneKey,
    by_lane,
    check_publishable,
    ids_or_error,
    in_order,
    per_message,
)
from rqretry.producer.lane import Lane, Publishing
from rqretry.producer.shared_call import Answer, send_shared
from rqretry.protocol.publish import Prepared, ids_of
from rqretry.transport.pipeline import in_turn
from rqretry.transport.store import Store

_RETIRE_S = 1.0


class _Waiting(NamedTuple):
    """A caller that waits for its answer."""

    messages: Sequence[Prepared]
    answered: "asyncio.Future[list[MessageId | Exception]]"


class LaneQueue:
    """What waits for one lane. Whoever finds the lane free sends; the rest is sent after it."""

    def __init__(
        self, store: Store, publishing: Publishing, lane: Lane, before: "Sequence[LaneQueue]" = ()
    ) -> None:
        self._store = store
        self._publishing = publishing
        self._lane = lane
        self._before = before
        """Lanes from before the topic has grown: what was given to them goes first."""
        self._waiting: deque[_Waiting] = deque()
        self._busy = False
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._two: tuple[Lane, Lane] | None = None
        """The lanes of a bulk; None while one is under way on them, and before the first."""

    async def send_all(self, calls: Sequence[Sequence[Prepared]]) -> list[MessageId | Exception]:
        """Send a bulk, cut into calls, beside what others publish; an id or an error for each."""
        await self._after_older()
        two, self._two = self._two or (self._lane.beside(), self._lane.beside()), None
        operations = self._publishing.send_in_turn(two, calls)
        answers = await self._store.drive(in_turn(self._store.session, operations))
        self._two = two
        return per_message(calls, answers)

    def room(self) -> Room:
        """What one call may take."""
        return room_in(self._publishing.route(self._lane.topic, self._lane.partition))

    async def send(self, messages: Sequence[Prepared]) -> list[MessageId | Exception]:
        """Send messages (one call's worth); an id or an error for each."""
        self._start_over_in_new_loop()
        if not self._busy:
            self._busy = True
            try:
                if self._before:
                    await self._after_older()
                return await self._call(messages)
            finally:
                self._send_waiting()
        future: asyncio.Future[list[MessageId | Exception]] = (
            asyncio.get_running_loop().create_future()
        )
        self._waiting.append(_Waiting(messages, future))
        return await future

    async def sent(self) -> None:
        """Wait until what was given to the lane so far is sent."""
        if self._busy and self._loop is asyncio.get_running_loop():
            await self.send(())

    async def aclose(self) -> list[Lane]:
        """Wait until what was given to the lane is sent; the lanes that no call uses then."""
        if self._task is not None and self._loop is asyncio.get_running_loop():
            await asyncio.wait([self._task])
        return [] if self._busy else [self._lane, *(self._two or ())]

    def _start_over_in_new_loop(self) -> None:
        """In another asyncio.run() nothing is under way: that ended with the other loop."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._store.check_owner()
            if self._busy:  # its last call was cut off
                self._lane.start_over()
            self._loop, self._task, self._busy = loop, None, False
            self._waiting.clear()

    def _call(
        self, messages: Sequence[Prepared]
    ) -> Coroutine[Any, Any, list[MessageId | Exception]]:
        return self._store.perform(self._publishing.send(self._lane, messages))

    async def _after_older(self) -> None:
        if self._before:
            sent = (lane.sent() for lane in self._before)
            await asyncio.gather(*sent, return_exceptions=True)
            self._before = ()

    def _send_waiting(self) -> None:
        if self._waiting:
            self._waiting = deque([each for each in self._waiting if not each.answered.done()])
        if self._waiting:
            self._task = asyncio.get_running_loop().create_task(self._drain())
            self._task.add_done_callback(self._drained)
        else:
            self._busy, self._task = False, None

    def _drained(self, task: asyncio.Task[None]) -> None:
        if task is self._task:  # cancelled, as all tasks of a loop are, which may go on
            self._send_waiting()

    async def _drain(self) -> None:
        while self._waiting:
            callers = next_call(self._waiting, self.room(), self._publishing.in_doubt)
            await self._answer([each for each in callers if not each.answered.done()])
            if len(callers) > 1:
                await asyncio.sleep(0)  # those who publish again at once go together, too
        self._busy, self._task = False, None

    async def _answer(self, callers: Sequence[_Waiting]) -> None:
        """Send what some callers publish; each gets its own answer."""
        parts = [caller.messages for caller in callers]
        try:
            if self._before:
                await self._after_older()
            shared = send_shared(partial(self._publishing.send, self._lane), parts)
            _wake(callers, await self._store.perform(shared))
        except asyncio.CancelledError:
            _wake(callers, [AmbiguousResult("publish", ids_of(p), "cancelled") for p in parts])
            raise


def _wake(callers: Sequence[_Waiting], answers: Sequence[Answer]) -> None:
    for caller, answer in zip(callers, answers, strict=True):
        if caller.answered.done():
            continue
        if isinstance(answer, Exception):
            caller.answered.set_exception(answer)
        else:
            caller.answered.set_result(answer)


@dataclass(slots=True)
class _Lanes:
    """The lanes into one topic."""

    partitions: int
    """How many it has."""
    older: list[LaneQueue]
    """Lanes from when it had others."""
    by_key: dict[LaneKey, LaneQueue] = field(default_factory=dict)

    def all(self) -> list[LaneQueue]:
        return [*self.older, *self.by_key.values()]


class Publisher:
    """Publishes for one asyncio client."""

    def __init__(self, store: Store, encoder: Encoder) -> None:
        self._store = store
        self._encoder = encoder
        self._publishing = Publishing(encoder.catalog, encoder.clock, encoder.make_id)
        self._lanes: dict[str, _Lanes] = {}
        """By topic."""

    async def publish(self, topic: str, body: Any, options: PublishOptions) -> MessageId:
        """Publish one body or OutgoingMessage."""
        item = outgoing(body, options) if options else body
        if observer.installed is None:
            return await self._publish(topic, item)
        namespace = self._encoder.catalog.namespace
        with observer.publication(namespace, topic, [item], batch=False) as watched:
            answer = await self._publish(topic, watched.items[0])
            watched.done([answer])
            return answer

    async def _publish(self, topic: str, item: Any) -> MessageId:
        found = self._publishing.prepare_bare(topic, item)
        if found is None:
            topic = check_topic(topic)
            (found,) = await self._prepare(topic, [item])
        partition, message = found
        (answer,) = await self._lane(topic, (partition, message.durability)).send([message])
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def publish_many(self, topic: str, items: Iterable[Any]) -> list[MessageId]:
        """Publish bodies or OutgoingMessages in bounded calls, one after another per partition."""
        if observer.installed is None:
            return await self._publish_many(topic, items)
        namespace = self._encoder.catalog.namespace
        with observer.publication(namespace, topic, list(items), batch=True) as watched:
            answers = await self._publish_many(topic, watched.items)
            watched.done(answers)
            return answers

    async def _publish_many(self, topic: str, items: Iterable[Any]) -> list[MessageId]:
        topic = check_topic(topic)
        prepared = await self._prepare(topic, items)
        lanes = by_lane(prepared)
        to = [(self._lane(topic, key), messages) for key, messages in lanes.items()]
        parts = await asyncio.gather(*(self._publish_to(*each) for each in to))
        return ids_or_error(in_order(lanes, parts, prepared), prepared)

    async def aclose(self) -> None:
        """Wait until everything given to the lanes is sent; have partitions forget them soon."""
        queues = [queue for lanes in self._lanes.values() for queue in lanes.all()]
        lanes = [lane for queue in queues for lane in await queue.aclose()]
        commands = self._publishing.retire(lanes)
        if commands and self._store.fault is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_RETIRE_S):
                    await self._store.run_each(commands, 0.0)

    async def _prepare(self, topic: str, items: Iterable[Any]) -> Addressed:
        items = list(items)
        if not self._store.session.greeted:
            check_publishable(items)
            await self._store.connect()
        return await self._store.perform(self._encoder.prepare(topic, items))

    async def _publish_to(
        self, lane: LaneQueue, messages: Sequence[Prepared]
    ) -> list[MessageId | Exception]:
        calls = list(chunks(messages, lane.room()))
        if len(calls) > 1:
            return await lane.send_all(calls)
        try:
            return await lane.send(calls[0])
        except RqretryError as error:
            return [error] * len(messages)

    def _lane(self, topic: str, key: LaneKey) -> LaneQueue:
        lanes, partitions = self._lanes.get(topic), self._publishing.partitions(topic)
        if lanes is None or lanes.partitions != partitions:
            lanes = self._lanes[topic] = _Lanes(partitions, lanes.all() if lanes else [])
        found = lanes.by_key.get(key)
        if found is None:
            lane = Lane(topic, key[0], partitions, durability=key[1])
            found = LaneQueue(self._store, self._publishing, lane, lanes.older)
            lanes.by_key[key] = found
        return found
