"""The sync publisher: each thread has lanes of its own, so no call waits for another thread's."""

import os
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from rqretry.core.limits import check_topic
from rqretry.core.message import PublishOptions, outgoing
from rqretry.core.message_id import MessageId
from rqretry.observability import observer
from rqretry.producer.chunking import Place, chunks, collected, each, joined, split
from rqretry.producer.lane import Lane, Publishing
from rqretry.protocol.publish import Prepared
from rqretry.transport.pipeline import in_turn
from rqretry.transport.store_sync import SyncStore


class _Lanes(threading.local):
    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lanes: dict[tuple[str, Place], tuple[Lane, Lane]] = {}


class SyncPublisher:
    """Publishes for one sync client; thread- and fork-safe."""

    def __init__(self, store: SyncStore, publishing: Publishing) -> None:
        self._store = store
        self._publishing = publishing
        self._local = _Lanes()

    def publish(self, topic: str, body: Any, options: PublishOptions) -> MessageId:
        """Publish one body or OutgoingMessage."""
        item = outgoing(body, options) if options else body
        if observer.installed is None:
            return self._publish(topic, item)
        namespace = self._publishing.catalog.namespace
        with observer.publication(namespace, topic, [item], batch=False) as watched:
            answer = self._publish(topic, watched.items[0])
            watched.done([answer])
            return answer

    def _publish(self, topic: str, item: Any) -> MessageId:
        self._store.connect()
        found = self._publishing.prepared(topic, item)
        if found is None:
            topic = check_topic(topic)
            found = self._prepare(topic, [item])[0]
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
        namespace = self._publishing.catalog.namespace
        with observer.publication(namespace, topic, list(items), batch=True) as watched:
            answers = self._publish_many(topic, watched.items)
            watched.done(answers)
            return answers

    def _publish_many(self, topic: str, items: Iterable[Any]) -> list[MessageId]:
        topic = check_topic(topic)
        prepared = self._prepare(topic, items)
        places = split(prepared)
        parts = [self._publish_to(topic, place, messages) for place, messages in places.items()]
        return collected(joined(places, parts, prepared), prepared)

    def _publish_to(
        self, topic: str, place: Place, messages: Sequence[Prepared]
    ) -> list[MessageId | Exception]:
        calls = list(chunks(messages))
        operations = self._publishing.send_in_turn(self._two(topic, place), calls)
        return each(calls, self._store.drive(in_turn(self._store.session, operations)))

    def _prepare(self, topic: str, items: Iterable[Any]) -> Sequence[tuple[int, Prepared]]:
        self._store.connect()
        return self._store.perform(self._publishing.prepare(topic, items))

    def _two(self, topic: str, place: Place) -> tuple[Lane, Lane]:
        """This thread's lanes to a place: one for single calls, and both for a bulk."""
        local = self._local
        if local.pid != os.getpid():  # forked: the parent's lanes are the parent's
            local.pid, local.lanes = os.getpid(), {}
        if (topic, place) not in local.lanes:
            one, other = (Lane(topic, place[0], durability=place[1]) for _ in range(2))
            local.lanes[topic, place] = one, other
        return local.lanes[topic, place]
