"""Where tasks publish: rows in, calls out, each row once whatever runs again.

Rows with ids of their own go out as from any client: the partition knows an id, and refuses it with
another body. Other rows go through replayable lanes (rqretry/replaying.py), one for each task and
partition of the topic, with ids made of the task and the number of the row.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from rqretry.catalog import Catalog
from rqretry.codec import digest, encode, stamp_all
from rqretry.command import Operation
from rqretry.commands.producing import Prepared
from rqretry.edge.spark.options import Options
from rqretry.edge.spark.rows import ID, Mapping, RowError, Rows
from rqretry.edge.spark.task import Task, Totals, short
from rqretry.edge.spark.tracing import traced, traced_task
from rqretry.errors import RqretryError
from rqretry.identity import worker_name
from rqretry.ids import MessageId
from rqretry.limits import MAX_CALL_BYTES, are_message_ids, check_message_id
from rqretry.message import OutgoingMessage
from rqretry.preparing import collector_paused, draft, partition_for
from rqretry.publishing import Lane, Publishing
from rqretry.reaching import reach
from rqretry.replaying import ReplayableLane, check_complete, is_closed, note, replay
from rqretry.store_sync import SyncStore

_BORN_BYTES = 9  # msgpack's form of a time in milliseconds, at the end of an envelope
_OTHERS = 64
_new = tuple.__new__

Reject = Callable[[int, RqretryError], None]
"""Told the place of a row in its batch, and why it cannot be published."""


@contextmanager
def publishing_to(options: Options) -> Iterator[tuple[SyncStore, Publishing]]:
    """A connected publisher."""
    settings = options.settings
    with SyncStore(settings.url) as store:
        reach(store)
        catalog = Catalog(settings.namespace, settings.levels, worker_name())
        yield store, Publishing(catalog, store.clock)


def publish_batches(
    options: Options,
    mapping: Mapping,
    task: Task,
    batches: Iterable[pa.RecordBatch],
    reject: Reject,
) -> Totals:
    """Publish the rows of a task.

    Raises:
        InvalidArgument: An id is the id of another message, with another body.
        ConfigError: Other rows were published by an earlier attempt in the place of these.
        QueueFull, StoreUnavailable, AmbiguousResult: Not all could be stored; run it again.
    """
    with traced_task(), publishing_to(options) as (store, publishing):
        kind = _ByLane if mapping.id_column is None else _ById
        record = store.perform(publishing.catalog.topic(options.target, create=True))
        outlet = kind(store, publishing, options, task, record.partitions)
        try:
            for batch in batches:
                outlet.take(Rows(batch, mapping), reject)
            outlet.finish()
        finally:
            outlet.close()
        return outlet.totals


def begin_job(options: Options, task: Task, plan: str) -> None:
    """Before the first task of a job that has a name: its plan must be what it was before.

    Raises:
        ConfigError: It is another one.
    """
    with publishing_to(options) as (store, publishing):
        store.perform(publishing.catalog.topic(options.target, create=True))
        store.perform(note(publishing, _mark(options, task, "begin"), plan))


def close_epoch(options: Options, task: Task, tasks: int) -> None:
    """After the last task: note that the epoch is done, so that nothing more is published in it.

    Raises:
        ConfigError: An earlier run had more tasks: the plan has changed.
    """
    others = [Task(task.job, tasks + n, task.epoch) for n in range(_OTHERS)]
    with publishing_to(options) as (store, publishing):
        record = store.perform(publishing.catalog.topic(options.target, create=True))
        for number in range(record.partitions):
            lanes = [_lane(options, other, number) for other in others]
            store.perform(check_complete(publishing, lanes))
        store.perform(note(publishing, _mark(options, task), f"{tasks} tasks"))


@dataclass
class _Outlet(ABC):
    """Rows become chunks for each partition of the topic; one call is under way at a time."""

    store: SyncStore
    publishing: Publishing
    options: Options
    task: Task
    partitions: int
    totals: Totals = field(default_factory=Totals)

    def __post_init__(self) -> None:
        """Start the thread that sends, so that the next chunk is encoded meanwhile."""
        self._sender = ThreadPoolExecutor(1)
        self._under_way: Future[None] | None = None
        self._chunks: list[list[Prepared]] = [[] for _ in range(self.partitions)]
        self._sizes = [0] * self.partitions
        self._prefix = self.task.id_prefix

    def take(self, rows: Rows, reject: Reject) -> None:
        """The next rows."""
        now_ms, first = self.store.clock.now_ms(), self.totals.rows
        self.totals.rows += len(rows)
        messages: Iterable[Prepared] | None = self._all_at_once(rows, first, now_ms)
        if messages is None:
            messages = self._one_by_one(rows, first, now_ms, reject)
        alone, most = self.partitions == 1, self.options.batch_size
        for message in messages:
            partition = 0 if alone else partition_for(message, self.partitions)
            chunk, size = self._chunks[partition], len(message.data)
            if chunk and (len(chunk) >= most or self._sizes[partition] + size > MAX_CALL_BYTES):
                self._flush(partition)
                chunk = self._chunks[partition]
            chunk.append(message)
            self._sizes[partition] += size

    def _all_at_once(self, rows: Rows, first: int, now_ms: int) -> list[Prepared] | None:
        """Most batches are bare bodies, with ids or without; None where this one is not."""
        if rows.parts.keys() - {ID}:
            return None
        try:
            with collector_paused():
                plain = rows.packed()
                return None if plain is None else self.prepare_all(plain, rows, first, now_ms)
        except RqretryError:  # one by one it shows which row it is
            return None

    def _one_by_one(
        self, rows: Rows, first: int, now_ms: int, reject: Reject
    ) -> Iterator[Prepared]:
        for place, item in enumerate(rows.items()):
            try:
                if isinstance(item, RowError):
                    raise item
                message = self.prepare(item, f"{self._prefix}{first + place}", now_ms)
            except RqretryError as error:
                self.totals.rejected += 1
                reject(place, error)
                continue
            yield message

    def finish(self) -> None:
        """Send the rest and wait until all is stored."""
        for partition in range(self.partitions):
            if self._chunks[partition]:
                self._flush(partition)
        self._wait()

    def close(self) -> None:
        """End the thread."""
        self._sender.shutdown()

    @abstractmethod
    def prepare_all(
        self, plain: list[bytes], rows: Rows, first: int, now_ms: int
    ) -> list[Prepared]:
        """What `prepare` makes of rows whose bodies are packed, from this number of the task on."""

    @abstractmethod
    def prepare(self, item: Any, made_id: str, now_ms: int) -> Prepared:
        """Check and encode one row."""

    @abstractmethod
    def send(
        self, partition: int, chunk: Sequence[Prepared], sent: Sequence[Prepared]
    ) -> Operation[Sequence[MessageId]]:
        """One call; the ids. `sent` is the chunk as it goes out: with traces, if it is traced."""

    def _flush(self, partition: int) -> None:
        chunk = self._chunks[partition]
        self._chunks[partition], self._sizes[partition] = [], 0
        self._wait()
        self._under_way = self._sender.submit(self._deliver, partition, chunk)

    def _deliver(self, partition: int, chunk: Sequence[Prepared]) -> None:
        space = self.publishing.catalog.keys.namespace
        with traced(space, self.options.target, chunk) as (sent, answers):
            answers.extend(self.store.perform(self.send(partition, chunk, sent)))

    def _wait(self) -> None:
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.result()


class _ById(_Outlet):
    """Rows that bring their ids."""

    def __post_init__(self) -> None:
        """A lane of this attempt for each partition."""
        super().__post_init__()
        self._lanes = [Lane(self.options.target, number) for number in range(self.partitions)]

    def prepare_all(
        self,
        plain: list[bytes],
        rows: Rows,
        first: int,  # noqa: ARG002
        now_ms: int,
    ) -> list[Prepared]:
        """With their digests, too."""
        ids = rows.parts[ID]
        if not are_message_ids(ids):
            ids = [*map(check_message_id, ids)]
        data = stamp_all(plain, now_ms) if now_ms else plain
        return [
            _new(Prepared, (id_, one, same, "", None, ""))
            for id_, one, same in zip(ids, data, map(digest, plain), strict=True)
        ]

    def prepare(self, item: Any, made_id: str, now_ms: int) -> Prepared:
        """With its id's digest, by which the partition knows it again."""
        return draft(item, made_id, now_ms)[0]

    def send(
        self, partition: int, chunk: Sequence[Prepared], sent: Sequence[Prepared]
    ) -> Operation[Sequence[MessageId]]:
        """One call; an id with another body ends the job."""
        answers = yield from self.publishing.send(self._lanes[partition], sent)
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        ids = [answer for answer in answers if not isinstance(answer, Exception)]
        known = sum(id_.duplicate for id_ in ids)
        self.totals.known += known
        self.totals.sent += len(chunk) - known
        return ids


class _ByLane(_Outlet):
    """Rows whose ids are made of the task and their number."""

    def __post_init__(self) -> None:
        """The task's lane for each partition."""
        super().__post_init__()
        self._lanes = [_lane(self.options, self.task, n) for n in range(self.partitions)]
        if self.task.replayable:
            mark = _mark(self.options, self.task)
            closed = self.store.perform(is_closed(self.publishing, mark))
            for lane in self._lanes:
                lane.closed = closed

    def prepare_all(
        self,
        plain: list[bytes],
        rows: Rows,  # noqa: ARG002
        first: int,
        now_ms: int,
    ) -> list[Prepared]:
        """With the time of publishing, too."""
        return [
            _new(Prepared, (f"{self._prefix}{number}", one, "", "", None, ""))
            for number, one in enumerate(stamp_all(plain, now_ms), first)
        ]

    def prepare(self, item: Any, made_id: str, now_ms: int) -> Prepared:
        """With the time of publishing, which such an id does not tell."""
        if not isinstance(item, OutgoingMessage):
            return Prepared(made_id, encode(item, born_ms=now_ms), "", "")
        named = replace(item, id=made_id)
        return draft(named, made_id, now_ms)[0]._replace(digest="")

    def send(
        self, partition: int, chunk: Sequence[Prepared], sent: Sequence[Prepared]
    ) -> Operation[Sequence[MessageId]]:
        """One call, unless an earlier attempt made it, traced or not."""
        lane = self._lanes[partition]
        before = lane.known
        said = map(_content, chunk)  # asked for one by one, in this order
        yield from replay(self.publishing, lane, sent, lambda _: next(said))
        return [MessageId(message.id, duplicate=lane.known > before) for message in chunk]

    def finish(self) -> None:
        """Send the rest; then no lane may hold more than was sent."""
        super().finish()
        self.store.perform(check_complete(self.publishing, self._lanes))
        self.totals.sent = sum(lane.sent for lane in self._lanes)
        self.totals.known = sum(lane.known for lane in self._lanes)


def _lane(options: Options, task: Task, number: int) -> ReplayableLane:
    return ReplayableLane(options.target, number, task.producer, task.epoch)


def _mark(options: Options, task: Task, what: str = "end") -> ReplayableLane:
    """The lane that tells which epochs of a job are done, or have begun."""
    return ReplayableLane(options.target, 0, f"spark-{short(task.job)}-{what}", task.epoch)


def _content(message: Prepared) -> bytes:
    """The message without the time of publishing, which differs when it is published again."""
    return message.data[:-_BORN_BYTES]
