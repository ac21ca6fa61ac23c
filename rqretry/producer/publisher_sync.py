"""The sync publisher: each thread has lanes of its own, so no call waits for another thread's."""

import os
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from rqretry.core.limits import check_topic
from rqretry.core.message import PublishOptions, outgoing
from rqretry.core.message_id import MessageId
from rqretry.observability import observer
from rqretry.producer.encode import (
    Addressed,
    Encoder,
    LaneKey,
    by_lane,
    chunks,
    ids_or_error,
    in_order,
    per_message,
)
from rqretry.producer.lane import Lane, Publishing
from rqretry.protocol.publish import Prepared
from rqretry.transport.pipeline import in_turn
from rqretry.transport.store_sync import SyncStore


class _Lanes(threading.local):
    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lanes: dict[tuple[str, LaneKey], tuple[Lane, Lane]] = {}


class SyncPublisher:
    """Publishes for one sync client; thread- and fork-safe."""

    def __init__(self, store: SyncStore, encoder: Encoder) -> None:
        self._store = store
        self._encoder = encoder
        self._publishing = Publishing(encoder.catalog, encoder.clock, encoder.make_id)
        self._local = _Lanes()

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
        self._store.connect()
        found = self._publishing.prepare_bare(topic, item)
        if found is None:
            topic = check_topic(topic)
            (found,) = self._prepare(topic, [item])
        partition, message = found
        (answer,) = self._store.perform(
            self._publishing.send(self._two(topic, (partition, message.durability))[0], [message])
        )
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
        to = [(self._two(topic, key), messages) for key, messages in lanes.items()]
        parts = [self._publish_to(two, messages) for two, messages in to]
        return ids_or_error(in_order(lanes, parts, prepared), prepared)

    def _publish_to(
        self, two: tuple[Lane, Lane], messages: Sequence[Prepared]
    ) -> list[MessageId | Exception]:
        calls = list(chunks(messages))
        operations = self._publishing.send_in_turn(two, calls)
        return per_message(calls, self._store.drive(in_turn(self._store.session, operations)))

    def _prepare(self, topic: str, items: Iterable[Any]) -> Addressed:
        self._store.connect()
        return self._store.perform(self._encoder.prepare(topic, items))

    def _two(self, topic: str, key: LaneKey) -> tuple[Lane, Lane]:
        """This thread's lanes to a key: one for single calls, and both for a bulk."""
        local = self._local
        if local.pid != os.getpid():  # forked: the parent's lanes are the parent's
            local.pid, local.lanes = os.getpid(), {}
        lanes, partitions = (
            local.lanes.get((topic, key)),
            self._publishing.partitions(topic),
        )
        if lanes is None or lanes[0].partitions != partitions:
            lane = Lane(topic, key[0], partitions, durability=key[1])
            lanes = local.lanes[topic, key] = lane, lane.beside()
        return lanes
