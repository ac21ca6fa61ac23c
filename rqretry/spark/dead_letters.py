"""Dead letters and stored messages as columns."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from rqretry.admin.dead_letter_filter import DeadLetterFilter, DeadLetterPages
from rqretry.catalog.store import Place
from rqretry.core.dead_letter import DeadLetterRecord, born
from rqretry.core.envelope import Envelope, decode
from rqretry.core.errors import CodecError
from rqretry.core.failure_record import AttemptError
from rqretry.protocol import history
from rqretry.protocol.command import MAX_BATCH
from rqretry.spark.event_details import error_type
from rqretry.spark.filters import Pruning
from rqretry.spark.offsets import Histories, TopicPartition, histories_of
from rqretry.spark.options import DEAD_LETTERS, Options

_UNREADABLE = Envelope(None, None, (), {}, None, None)
Row = Mapping[str, Any]


@dataclass
class Stored(InputPartition):
    """What one task reads: the bodies of a partition, or a group's dead letters in it."""

    topic: str
    partition: int
    group: str


def stored_parts(histories: Histories, pruning: Pruning) -> list[InputPartition]:
    """The parts of a read of dead letters or messages. Raises GroupNotFound, TopicNotFound."""
    options = histories.options
    partitions = [partition for partition in histories.partitions() if pruning.takes(*partition)]
    if options.kind != DEAD_LETTERS:
        return [Stored(*partition, "") for partition in partitions]
    wanted = _groups(histories, partitions, options.group)
    return [
        Stored(topic, n, g)
        for (topic, n), names in wanted.items()
        for g in names
        if pruning.takes_group(g)
    ]


def read_stored(options: Options, part: Stored, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of one part, page by page."""
    with histories_of(options) as histories:
        histories.store.perform(histories.catalog.open())
        pages = _dead(histories, part) if part.group else _messages(histories, part)
        for page in pages:
            rows = list(page)
            if rows:
                yield pa.RecordBatch.from_pylist(rows, schema=schema)


def _groups(
    histories: Histories, partitions: Sequence[TopicPartition], group: str | None
) -> dict[TopicPartition, Sequence[str]]:
    if group is not None:
        record = histories.store.perform(histories.catalog.groups.get(group))
        return {partition: [group] for partition in partitions if partition[0] in record.topics}
    records = {r.name: r for r in histories.store.perform(histories.catalog.topics.all())}
    return {partition: [g.name for g in records[partition[0]].groups] for partition in partitions}


def _dead(histories: Histories, part: Stored) -> Iterator[list[Row]]:
    keys = histories.catalog.group_keys(part.topic, part.partition, part.group)
    place = Place(part.topic, part.partition, keys)
    pages = DeadLetterPages(place, DeadLetterFilter(all=True), with_bodies=True)
    while (dead_letters := histories.store.perform(pages.next())) is not None:
        yield [
            _message(part, dead_letter.id, dead_letter.raw) | _death(dead_letter)
            for dead_letter in dead_letters
        ]


def _messages(histories: Histories, part: Stored) -> Iterator[list[Row]]:
    keys, cursor = histories.keys((part.topic, part.partition)), 0
    seen: set[str] = set()  # a scan may answer a message twice
    while True:
        command = history.scan_bodies(keys, cursor, MAX_BATCH)
        cursor, found = histories.store.run(command)
        fresh = [(id_, data) for id_, data in found if id_ not in seen]
        seen.update(id_ for id_, _ in fresh)
        yield [_message(part, id_, data) for id_, data in fresh]
        if cursor == 0:
            return


def _message(part: Stored, id_: str, data: bytes) -> dict[str, Any]:
    try:
        envelope = decode(data) if data else _UNREADABLE
    except CodecError:
        envelope = _UNREADABLE
    readable = envelope is not _UNREADABLE
    is_raw = isinstance(envelope.body, bytes)
    born_ms = born(id_, envelope)
    return {
        "topic": part.topic,
        "partition": part.partition,
        "id": id_,
        "body": json.dumps(envelope.body, ensure_ascii=False) if readable and not is_raw else None,
        "raw": envelope.body if is_raw else data,
        "tag": envelope.tag,
        "keys": list(envelope.keys) or None,
        "headers": list(envelope.headers.items()),
        "message_group": envelope.message_group,
        "published_at": None if born_ms is None else born_ms * 1000,
    }


def _death(dead_letter: DeadLetterRecord) -> dict[str, Any]:
    last = dead_letter.errors[-1] if dead_letter.errors else None
    tried = [error for error in dead_letter.errors if error.attempt > 0]
    return {
        "group": dead_letter.group,
        "cause": dead_letter.cause or None,
        "deliveries": dead_letter.attempt,
        "error_type": error_type(last) if last else None,
        "error_message": (last.message or None) if last else None,
        "fingerprint": (last.fingerprint or None) if last else None,
        "dead_since": dead_letter.dead_since_ms * 1000,
        "first_attempt_at": tried[0].at_ms * 1000 if tried else None,
        "last_attempt_at": tried[-1].at_ms * 1000 if tried else None,
        "errors": [_error(error) for error in dead_letter.errors],
    }


def _error(error: AttemptError) -> dict[str, Any]:
    return {
        "attempt": error.attempt,
        "at": error.at_ms * 1000,
        "cause": error.cause,
        "error_type": error_type(error),
        "error_message": error.message or None,
        "fingerprint": error.fingerprint or None,
        "worker": error.worker or None,
        "seconds": error.seconds,
    }
