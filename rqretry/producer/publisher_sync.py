"""The sync publisher: a call has lanes of its own; of many callers most share the next call."""

import os
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

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
from rqretry.producer.sender_thread import SenderThread, Waiting
from rqretry.producer.shared_call import Answer, send_shared
from rqretry.protocol.publish import Prepared
from rqretry.transport.pipeline import in_turn
from rqretry.transport.store_sync import SyncStore

BY_THEMSELVES = 2
"""Callers that send to one partition at once, each on a connection of its own; what others publish
meanwhile goes together, so that one caller, or two, never wait for another thread."""


class _Target:
    """What the calls to one partition with one durability have in common.

    Attributes:
        free: Lanes that no call uses now, two for each call.
        turns: One for each caller that may send by itself now.
        sender: Sends for the others.
    """

    def __init__(self, store: SyncStore, publishing: Publishing, lane: Lane) -> None:
        self.free: list[tuple[Lane, Lane]] = []
        self.turns = [True] * BY_THEMSELVES
        self.sender = SenderThread(self._next_call, self._send_shared)
        self._store = store
        self._publishing = publishing
        self._lane = lane

    def take(self) -> tuple[Lane, Lane]:
        """Two lanes that are this call's alone, until it has ended and gives them back."""
        try:
            return self.free.pop()
        except IndexError:
            return self._lane.beside(), self._lane.beside()

    def room(self) -> Room:
        """What one call may take."""
        return room_in(self._publishing.route(self._lane.topic, self._lane.partition))

    def send(self, messages: Sequence[Prepared]) -> list[MessageId | Exception]:
        """Send messages (one call's worth); an id or an error for each."""
        try:
            self.turns.pop()
        except IndexError:
            answers = self.sender.send(messages)
            return self._send_alone(messages) if answers is None else answers
        try:
            return self._send_alone(messages)
        finally:
            self.turns.append(True)

    def _send_alone(self, messages: Sequence[Prepared]) -> list[MessageId | Exception]:
        two = self.take()
        answers = self._store.perform(self._publishing.send(two[0], messages))
        self.free.append(two)
        return answers

    def _next_call(self, waiting: deque[Waiting]) -> list[Waiting]:
        return next_call(waiting, self.room(), self._publishing.in_doubt)

    def _send_shared(self, parts: Sequence[Sequence[Prepared]]) -> list[Answer]:
        two = self.take()
        send = partial(self._publishing.send, two[0])
        answers = self._store.perform(send_shared(send, parts))
        self.free.append(two)
        return answers


class SyncPublisher:
    """Publishes for one sync client; thread- and fork-safe."""

    def __init__(self, store: SyncStore, encoder: Encoder) -> None:
        self._store = store
        self._encoder = encoder
        self._publishing = Publishing(encoder.catalog, encoder.clock, encoder.make_id)
        self._pid = os.getpid()
        self._targets: dict[tuple[str, int, LaneKey], _Target] = {}

    def publish(self, topic: str, body: Any, options: PublishOptions) -> MessageId:
        """Publish one body or OutgoingMessage."""
        item = outgoing(body, options) if options else body
        if observer.installed is None:
            return self._publish(topic, item)
        namespace = self._encoder.catalog.namespace
        with observer.publication(namespace, topic, [item], batch=False) as watched:
            answer = self._publish(topic, watched.items[0])
            watched.done([answer])
            return answer

    def _publish(self, topic: str, item: Any) -> MessageId:
        found = self._publishing.prepare_bare(topic, item)
        if found is None:
            topic = check_topic(topic)
            (found,) = self._prepare(topic, [item])
        partition, message = found
        (answer,) = self._target(topic, (partition, message.durability)).send([message])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def publish_many(self, topic: str, items: Iterable[Any]) -> list[MessageId]:
        """Publish bodies or OutgoingMessages in bounded calls."""
        if observer.installed is None:
            return self._publish_many(topic, items)
        namespace = self._encoder.catalog.namespace
        with observer.publication(namespace, topic, list(items), batch=True) as watched:
            answers = self._publish_many(topic, watched.items)
            watched.done(answers)
            return answers

    def _publish_many(self, topic: str, items: Iterable[Any]) -> list[MessageId]:
        topic = check_topic(topic)
        prepared = self._prepare(topic, items)
        lanes = by_lane(prepared)
        to = [(self._target(topic, key), messages) for key, messages in lanes.items()]
        parts = [self._publish_to(target, messages) for target, messages in to]
        return ids_or_error(in_order(lanes, parts, prepared), prepared)

    def close(self) -> None:
        """Have partitions forget the lanes soon, if their servers answer."""
        targets = list(self._targets.values()) if self._pid == os.getpid() else []
        for target in targets:
            target.sender.close()
        lanes = [lane for target in targets for two in list(target.free) for lane in two]
        commands = self._publishing.retire(lanes)
        if commands and self._store.session.faults.now is None:
            self._store.run_each(commands, 0.0)

    def _publish_to(
        self, target: _Target, messages: Sequence[Prepared]
    ) -> list[MessageId | Exception]:
        two = target.take()
        calls = list(chunks(messages, target.room()))
        operations = self._publishing.send_in_turn(two, calls)
        answers = per_message(calls, self._store.drive(in_turn(self._store.session, operations)))
        target.free.append(two)
        return answers

    def _prepare(self, topic: str, items: Iterable[Any]) -> Addressed:
        items = list(items)
        if not self._store.session.greeted:
            check_publishable(items)
            self._store.connect()
        return self._store.perform(self._encoder.prepare(topic, items))

    def _target(self, topic: str, key: LaneKey) -> _Target:
        if self._pid != os.getpid():  # forked: the parent's lanes and threads are the parent's
            self._targets, self._pid = {}, os.getpid()
        partitions = self._publishing.partitions(topic)
        found = self._targets.get((topic, partitions, key))
        if found is None:
            lane = Lane(topic, key[0], partitions, durability=key[1])
            made = _Target(self._store, self._publishing, lane)
            found = self._targets.setdefault((topic, partitions, key), made)
        return found
