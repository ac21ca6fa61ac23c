"""Where tasks publish: rows in, calls out, each row once whatever runs again.

Rows with ids of their own go out as from any client: the partition knows an id, and refuses it with
another body. Other rows go through replayable lanes (producer/replayable_lane.py), one for each
task and partition of the topic, with ids made of the task and the number of the row.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from rqretry.core.envelope import digest_all, encode, stamp_all
from rqretry.core.errors import InvalidArgument, RqretryError
from rqretry.core.limits import are_message_ids
from rqretry.core.message import OutgoingMessage
from rqretry.core.message_id import MessageId
from rqretry.producer.encode import collector_paused, draft
from rqretry.producer.lane import Lane, Publishing
from rqretry.producer.replayable_lane import (
    ReplayableLane,
    check_complete,
    is_closed,
    note,
    read_last,
    replay,
)
from rqretry.protocol.command import Operation, Pause
from rqretry.protocol.publish import PlainMessages, Prepared, compressed, ids_of
from rqretry.spark.chunking import Call, Cutter
from rqretry.spark.offsets import connected
from rqretry.spark.options import Options
from rqretry.spark.publish_tracing import traced, traced_task
from rqretry.spark.rows import ID, Mapping, RowError, Rows
from rqretry.spark.task_context import Task, Totals, short
from rqretry.transport.pipeline import in_turn
from rqretry.transport.store_sync import SyncStore

_BORN_BYTES = 9  # msgpack's form of a time in milliseconds, at the end of an envelope
_OTHERS = 64

Reject = Callable[[int | Prepared, RqretryError], None]
"""Called with why a row cannot be published, and with its index in its batch, or with its message
where only the server knew."""


@contextmanager
def publishing_to(options: Options) -> Iterator[tuple[SyncStore, Publishing, int]]:
    """A connected publisher, and the number of the topic's partitions; the topic is created."""
    with connected(options.settings) as (store, catalog):
        record = store.perform(catalog.topics.get(options.target, create=True))
        yield store, Publishing(catalog, store.clock), record.partitions


def publish_batches(
    options: Options,
    mapping: Mapping,
    task: Task,
    batches: Iterable[pa.RecordBatch],
    reject: Reject,
) -> Totals:
    """Publish the rows of a task.

    Raises:
        ConfigError: Other rows were published by an earlier attempt in the place of these.
        QueueFull, StoreUnavailable, AmbiguousResult: Not all could be stored; run it again.
    """
    sink_type = _ByLane if mapping.id_column is None else _ById
    with traced_task(), publishing_to(options) as (store, publishing, partitions):
        sink = sink_type(store, publishing, options, task, partitions, reject)
        return sink.publish(batches, mapping)


def begin_job(options: Options, task: Task, plan: str) -> None:
    """Before the first task of a job that has a name: its plan must be what it was before.

    Raises:
        ConfigError: It is another one.
    """
    with publishing_to(options) as (store, publishing, _):
        store.perform(note(publishing, _mark(options, task, "begin"), plan))


def close_epoch(options: Options, task: Task, tasks: int) -> None:
    """After the last task: note that the epoch is done, so that nothing more is published in it.

    Raises:
        ConfigError: An earlier run had more tasks: the plan has changed.
    """
    others = [Task(task.job, tasks + n, task.epoch) for n in range(_OTHERS)]
    with publishing_to(options) as (store, publishing, partitions):
        for number in range(partitions):
            lanes = [_lane(options, other, number) for other in others]
            store.perform(check_complete(publishing, lanes))
        store.perform(note(publishing, _mark(options, task), f"{tasks} tasks"))


@dataclass
class _Outlet(ABC):
    """Rows become calls; while the server executes one, the next one is made and sent."""

    store: SyncStore
    publishing: Publishing
    options: Options
    task: Task
    partitions: int
    reject: Reject
    totals: Totals = field(default_factory=Totals)
    _failed: bool = False

    def publish(self, batches: Iterable[pa.RecordBatch], mapping: Mapping) -> Totals:
        """All rows; what became of them."""
        cutter = Cutter(self.partitions, self.options.batch_size)

        def calls() -> Iterator[Call]:
            for batch in batches:
                for messages in self._messages(Rows(batch, mapping)):
                    yield from cutter.add(messages)
            yield from cutter.rest()

        self.begin()
        deliveries = in_turn(self.store.session, self._deliveries(calls()))
        for answer in self.store.drive(deliveries):
            if answer is not None:
                raise answer
        self.finish()
        return self.totals

    def _deliveries(self, calls: Iterable[Call]) -> Iterator[Operation[None]]:
        for partition, chunk in calls:
            if self._failed:
                return
            yield self._deliver(partition, chunk)

    def _deliver(self, partition: int, chunk: Sequence[Prepared]) -> Operation[None]:
        space, topic = self.publishing.catalog.keys.namespace, self.options.target
        if not self.publishing.may_be_ahead(topic, partition, chunk):
            yield Pause(0)  # until the call in front is answered: nothing may overtake it
            if self._failed:
                return
        try:
            with traced(space, topic, chunk) as (sent, report):
                record = self.publishing.catalog.store.known.get(topic)
                packed = compressed(sent, record.compress_from if record else 0)
                report((yield from self.send(partition, chunk, packed)))
        except RqretryError:
            self._failed = True
            raise

    def _messages(self, rows: Rows) -> Iterator[Sequence[Prepared]]:
        """A batch in parts: the server executes one part while the next one is prepared."""
        now_ms, first = self.store.clock.now_ms(), self.totals.rows
        self.totals.rows += len(rows)
        plain, size = _packed(rows), self.options.batch_size
        if plain is None:
            yield [*self._one_by_one(rows, first, now_ms)]
            return
        ids = rows.parts.get(ID, ())
        for at in range(0, len(plain), size):
            end = at + size
            yield self.prepare_all(plain[at:end], ids[at:end], first + at, now_ms)

    def _one_by_one(self, rows: Rows, first: int, now_ms: int) -> Iterator[Prepared]:
        for index, item in enumerate(rows.items()):
            try:
                if isinstance(item, RowError):
                    raise item
                message = self.prepare(item, f"{self.task.id_prefix}{first + index}", now_ms)
            except RqretryError as error:
                self._rejected(index, error)
                continue
            yield message

    def _rejected(self, row: int | Prepared, error: RqretryError) -> None:
        self.totals.rejected += 1
        self.reject(row, error)

    @abstractmethod
    def begin(self) -> None:
        """Before the first call: the lanes."""

    @abstractmethod
    def prepare_all(
        self, plain: list[bytes], ids: Sequence[str], first: int, now_ms: int
    ) -> PlainMessages:
        """What `prepare` makes of rows with packed bodies, numbered from this one of the task."""

    @abstractmethod
    def prepare(self, item: Any, made_id: str, now_ms: int) -> Prepared:
        """Check and encode one row."""

    @abstractmethod
    def send(
        self, partition: int, chunk: Sequence[Prepared], sent: Sequence[Prepared]
    ) -> Operation[Iterable[MessageId | Exception]]:
        """One call; the ids. `sent` is the chunk as it goes out, traced and compressed."""

    def finish(self) -> None:  # noqa: B027 - most often nothing is left to do
        """All calls are done."""


class _ById(_Outlet):
    """Rows that bring their ids."""

    def begin(self) -> None:
        """Two lanes of this attempt for each partition; their calls alternate."""
        topic = self.options.target
        lanes = [Lane(topic, n, self.partitions) for n in range(self.partitions)]
        self._lanes = [(lane, lane.beside()) for lane in lanes]

    def prepare_all(
        self,
        plain: list[bytes],
        ids: Sequence[str],
        first: int,  # noqa: ARG002
        now_ms: int,
    ) -> PlainMessages:
        """With their digests, too."""
        data = stamp_all(plain, now_ms) if now_ms else plain
        return PlainMessages([*ids], data, digest_all(plain))

    def prepare(self, item: Any, made_id: str, now_ms: int) -> Prepared:
        """With its id's digest, by which the partition knows it again."""
        return draft(item, made_id, now_ms)[0]

    def send(
        self,
        partition: int,
        chunk: Sequence[Prepared],
        sent: Sequence[Prepared],
    ) -> Operation[Iterable[MessageId | Exception]]:
        """One call; a message whose id has another body is rejected."""
        lane, front = self._lanes[partition]
        self._lanes[partition] = front, lane
        answers = yield from self.publishing.send(lane, sent, front)
        ids = [answer for answer in answers if isinstance(answer, MessageId)]
        known = sum(id_.duplicate for id_ in ids)
        self.totals.known += known
        self.totals.sent += len(ids) - known
        if len(ids) < len(answers):
            for message, answer in zip(chunk, answers, strict=True):
                if isinstance(answer, InvalidArgument):
                    self._rejected(message, answer)
                elif isinstance(answer, Exception):
                    raise answer
        return answers


class _ByLane(_Outlet):
    """Rows with ids made of the task and their number in it."""

    def begin(self) -> None:
        """The task's lane for each partition."""
        self._lanes = [_lane(self.options, self.task, n) for n in range(self.partitions)]
        self.store.perform(read_last(self.publishing, self._lanes))
        if self.task.replayable:
            mark = _mark(self.options, self.task)
            closed = self.store.perform(is_closed(self.publishing, mark))
            for lane in self._lanes:
                lane.closed = closed

    def prepare_all(
        self,
        plain: list[bytes],
        ids: Sequence[str],  # noqa: ARG002
        first: int,
        now_ms: int,
    ) -> PlainMessages:
        """With the time of publishing, too."""
        prefix = self.task.id_prefix
        made = [f"{prefix}{number}" for number in range(first, first + len(plain))]
        return PlainMessages(made, stamp_all(plain, now_ms))

    def prepare(self, item: Any, made_id: str, now_ms: int) -> Prepared:
        """With the time of publishing, which such an id does not have."""
        if not isinstance(item, OutgoingMessage):
            return Prepared(made_id, encode(item, born_ms=now_ms), "", "")
        named = replace(item, id=made_id)
        return draft(named, made_id, now_ms)[0]._replace(digest="")

    def send(
        self, partition: int, chunk: Sequence[Prepared], sent: Sequence[Prepared]
    ) -> Operation[Iterable[MessageId | Exception]]:
        """One call, unless an earlier attempt made it, traced or not."""
        lane = self._lanes[partition]
        added = yield from replay(self.publishing, lane, sent, _contents(chunk))
        return (MessageId(id_, duplicate=not added) for id_ in ids_of(chunk))

    def finish(self) -> None:
        """No lane may hold more than was sent."""
        self.store.perform(check_complete(self.publishing, self._lanes))
        self.totals.sent = sum(lane.sent for lane in self._lanes)
        self.totals.known = sum(lane.known for lane in self._lanes)


def _packed(rows: Rows) -> list[bytes] | None:
    """Most batches are bare bodies, with ids or without; None if this one is not."""
    if rows.parts.keys() - {ID} or not are_message_ids(rows.parts.get(ID, ())):
        return None
    try:
        with collector_paused():
            return rows.packed()
    except RqretryError:  # one by one it shows which row it is
        return None


def _lane(options: Options, task: Task, number: int) -> ReplayableLane:
    return ReplayableLane(options.target, number, task.producer, task.epoch)


def _mark(options: Options, task: Task, what: str = "end") -> ReplayableLane:
    """The lane that records which epochs of a job are done, or have begun."""
    return ReplayableLane(options.target, 0, f"spark-{short(task.job)}-{what}", task.epoch)


def _contents(messages: Sequence[Prepared]) -> list[bytes]:
    """The messages without the time of publishing, which differs when they are published again."""
    if isinstance(messages, PlainMessages):
        return [data[:-_BORN_BYTES] for data in messages.data]
    return [message.data[:-_BORN_BYTES] for message in messages]
