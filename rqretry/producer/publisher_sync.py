"""The sync publisher: each call has lanes of its own, so none waits for another thread's."""

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
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
    check_publishable,
    chunks,
    ids_or_error,
    in_order,
    per_message,
    room_in,
)
from rqretry.producer.lane import Lane, Publishing
from rqretry.protocol.publish import Prepared
from rqretry.transport.pipeline import in_turn
from rqretry.transport.store_sync import SyncStore


class _Lanes:
    """Lanes that no call uses now, two for each partition and durability.

    A partition remembers each lane for an hour, so there are no more than calls at once, however
    many threads come and go; and for a minute after the client is closed.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._free: dict[tuple[str, int, LaneKey], list[tuple[Lane, Lane]]] = defaultdict(list)

    def take(self, topic: str, partitions: int, key: LaneKey) -> tuple[Lane, Lane]:
        """Two that are this call's alone, until it has ended and gives them back."""
        if self._pid != os.getpid():  # forked: the parent's lanes are the parent's
            self._pid = os.getpid()
            self._free.clear()
        free = self._free[topic, partitions, key]
        if free:
            with suppress(IndexError):  # another thread was faster
                return free.pop()
        lane = Lane(topic, key[0], partitions, durability=key[1])
        return lane, lane.beside()

    def give_back(self, two: tuple[Lane, Lane]) -> None:
        """Another call may use these."""
        lane = two[0]
        self._free[lane.topic, lane.partitions, (lane.partition, lane.durability)].append(two)

    def free(self) -> list[Lane]:
        """All that no call uses now; none that are the parent process's."""
        mine = list(self._free.values()) if self._pid == os.getpid() else []
        return [lane for twos in mine for two in list(twos) for lane in two]


class SyncPublisher:
    """Publishes for one sync client; thread- and fork-safe."""

    def __init__(self, store: SyncStore, encoder: Encoder) -> None:
        self._store = store
        self._encoder = encoder
        self._publishing = Publishing(encoder.catalog, encoder.clock, encoder.make_id)
        self._lanes = _Lanes()

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
        two = self._two(topic, (partition, message.durability))
        (answer,) = self._store.perform(self._publishing.send(two[0], [message]))
        self._lanes.give_back(two)
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

    def close(self) -> None:
        """Have partitions forget the lanes soon, if their servers answer."""
        commands = self._publishing.retire(self._lanes.free())
        if commands and self._store.session.faults.now is None:
            self._store.run_each(commands, 0.0)

    def _publish_to(
        self, two: tuple[Lane, Lane], messages: Sequence[Prepared]
    ) -> list[MessageId | Exception]:
        route = self._publishing.route(two[0].topic, two[0].partition)
        calls = list(chunks(messages, room_in(route)))
        operations = self._publishing.send_in_turn(two, calls)
        answers = per_message(calls, self._store.drive(in_turn(self._store.session, operations)))
        self._lanes.give_back(two)
        return answers

    def _prepare(self, topic: str, items: Iterable[Any]) -> Addressed:
        items = list(items)
        if not self._store.session.greeted:
            check_publishable(items)
            self._store.connect()
        return self._store.perform(self._encoder.prepare(topic, items))

    def _two(self, topic: str, key: LaneKey) -> tuple[Lane, Lane]:
        """Lanes to a key: one for single calls, and both for a bulk."""
        return self._lanes.take(topic, self._publishing.partitions(topic), key)
