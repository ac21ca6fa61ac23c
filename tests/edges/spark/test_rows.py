"""Arrow batches as messages, without Spark: as values, and all at once as one by one."""

import math
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rqretry import Client, QueueFull, RqretryError
from rqretry.core.envelope import encode
from rqretry.protocol.publish import Prepared
from rqretry.spark.arrow_encode import pack_structs
from rqretry.spark.options import Options, read_options
from rqretry.spark.parquet_files import Folder
from rqretry.spark.rejects import REASON, Rejects
from rqretry.spark.rows import Mapping, Rows
from rqretry.spark.sink import (
    _ById,
    _ByLane,
    close_epoch,
    publish_batches,
    publishing_to,
)
from rqretry.spark.task_context import Task, Totals
from rqretry.spark.values import values_of
from rqretry.testing.embedded_redis import EmbeddedRedis

NOW_MS = 1_795_000_000_000
TASK = Task("job", 3)
BY_ID = Mapping(None, False, (("id", "n"),))
IN_ORDER = Mapping(None, False, (("id", "n"), ("message_group", "m")))
WHOLE = Mapping(None, False, ())


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1, None, 2**53 + 1, -1]),
        pa.array([1, 2], pa.int8()),
        pa.array([], pa.int32()),
        pa.array([None, None], pa.int64()),
        pa.array([1.5, None, -0.0, 1e300]),
        pa.array([True, None, False]),
        pa.array([True, False]),
        pa.array(["a", None, "\u00e9", ""]),
        pa.array([None, None], pa.string()),
        pa.array([[1, None], None, []]),
        pa.array([{"x": 1, "y": ["a"]}, None, {"x": None, "y": None}]),
        pa.array([None], pa.null()),
        pa.array([b"\x00", None]),
    ],
)
def test_values_are_those_of_arrow(array: pa.Array) -> None:
    for part in (array, array.slice(1)):
        found = values_of(part)
        assert found == part.to_pylist()
        assert [type(value) for value in found] == [type(value) for value in part.to_pylist()]


def test_what_is_no_number_stays_none_and_nothing_else_becomes_it() -> None:
    nan, none, one = values_of(pa.array([math.nan, None, 1.0]))
    assert math.isnan(nan)
    assert (none, one) == (None, 1.0)


@pytest.fixture(scope="module")
def options(redis_server: EmbeddedRedis) -> Options:
    return read_options({"url": redis_server.url, "namespace": "rows", "topic": "t"})


def refuse(row: int | Prepared, error: RqretryError) -> None:
    raise AssertionError(f"row {row}: {error}")


@pytest.fixture
def by_id(options: Options) -> Iterator[_ById]:
    with publishing_to(options) as (store, publishing, _):
        yield _ById(store, publishing, options, TASK, 1, refuse)


@pytest.fixture
def by_lane(options: Options) -> Iterator[_ByLane]:
    with publishing_to(options) as (store, publishing, _):
        yield _ByLane(store, publishing, options, TASK, 1, refuse)


def batch() -> pa.RecordBatch:
    columns: dict[str, list[Any]] = {
        "n": ["a", "b", "c:1"],
        "small": [1, None, 3],
        "inner": [{"x": [1.5]}, None, {"x": []}],
    }
    return pa.RecordBatch.from_pydict(columns)


def test_rows_with_ids_are_the_same_all_at_once_as_one_by_one(by_id: _ById) -> None:
    rows = Rows(batch(), BY_ID)
    for now_ms in (NOW_MS, 0):
        made = by_id.prepare_all(packed(rows), rows.parts["id"], 5, now_ms)
        assert [*made] == [by_id.prepare(item, "", now_ms) for item in rows.items()]
        assert [one.id for one in made] == ["a", "b", "c:1"]


def test_rows_without_ids_are_the_same_all_at_once_as_one_by_one(by_lane: _ByLane) -> None:
    rows, prefix = Rows(batch(), WHOLE), TASK.id_prefix
    made = by_lane.prepare_all(packed(rows), (), 5, NOW_MS)
    named = [f"{prefix}{number}" for number in range(5, 8)]
    items = rows.items()
    alone = [by_lane.prepare(*one, NOW_MS) for one in zip(items, named, strict=True)]
    assert [*made] == alone
    assert made[0] == Prepared(f"{prefix}5", encode(items[0], born_ms=NOW_MS), "", "")


def packed(rows: Rows) -> list[bytes]:
    found = rows.packed()
    assert found is not None
    return found


COLUMNS: dict[str, list[Any]] = {
    "n": [1, None, 2**53 + 1],
    "text": ["a", None, "\u00e9"],
    "often": ["x", "x", None],
    "yes": [True, None, False],
    "number": [1.5, None, -0.0],
    "when": [datetime(2026, 11, 21, 1, 2, 3, 500, tzinfo=UTC), None, None],
    "day": [date(2026, 11, 21)] * 3,
    "money": [Decimal("1.10"), None, Decimal(2)],
    "nothing": [None] * 3,
}


@pytest.mark.parametrize("names", [[*COLUMNS], *([name] for name in COLUMNS)])
def test_structs_are_packed_as_the_codec_packs_dicts(names: list[str]) -> None:
    structs = pa.RecordBatch.from_pydict({n: COLUMNS[n] for n in names}).to_struct_array()
    for part in (structs, structs.slice(1), structs.slice(3)):
        assert pack_structs(part) == [encode(row) for row in values_of(part)]


@pytest.mark.parametrize(
    "structs",
    [
        pa.array([{"x": 1}, None]),
        pa.array([{"x": [1]}]),
        pa.array([{"x": {"y": 1}}]),
        pa.array([{"x": math.nan}]),
        pa.array([{"x": math.inf}]),
        pa.array([{}]),
        pa.array([{"x": "x" * 5_000_000}]),
        pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"]),
    ],
)
def test_what_needs_a_closer_look_is_not_packed(structs: pa.StructArray) -> None:
    assert pack_structs(structs) is None


@pytest.mark.parametrize("bad", [None, "a b", "x" * 129])
def test_one_bad_id_is_rejected_alone(options: Options, bad: str | None) -> None:
    refused: list[tuple[int | Prepared, str]] = []

    def put_aside(place: int | Prepared, error: RqretryError) -> None:
        refused.append((place, str(error)))

    rows = pa.RecordBatch.from_pydict({"n": ["first", bad, "last"]})
    totals = publish_batches(options, BY_ID, TASK, [rows], put_aside)
    assert (totals.rows, totals.rejected, totals.sent + totals.known) == (3, 1, 2)
    ((place, shown),) = refused
    assert place == 1
    assert "id" in shown


def test_an_id_with_two_bodies_is_put_aside_as_the_row_it_was(
    options: Options, tmp_path: Path
) -> None:
    tags = pa.array([None, [("a", 1)], []], pa.map_(pa.string(), pa.int64()))
    rows = pa.RecordBatch.from_pydict(
        {name: COLUMNS[name][::-1] for name in ("text", "number", "yes", "when", "day", "money")}
        | {"id": [2**60, 2**60, 7], "inner": [None, {"x": [1.5]}, {"x": []}], "tags": tags}
    )
    task, mapping = Task("twice", 1), Mapping(None, False, (("id", "id"),))
    for _ in range(2):  # what runs again says the same
        with Rejects(Folder(str(tmp_path)), task) as rejects:
            batches = rejects.watching([rows, rows])
            totals = publish_batches(options, mapping, task, batches, rejects.add)
        assert (totals.rows, totals.rejected, totals.sent + totals.known) == (6, 2, 4)
    found = pq.read_table(tmp_path)
    assert found.column(REASON).unique().to_pylist() == [
        f"id '{2**60}' is the id of another message, with other content; publish under a new id"
    ]
    assert found.drop_columns([REASON]).to_pylist() == [rows.slice(1, 1).to_pylist()[0]] * 2


class Killed(Exception):
    """What happens to a task."""


def publish(
    options: Options, mapping: Mapping, ids: list[str], size: int, *, most: int = 10_000
) -> Totals:
    """Publish rows with these ids in batches, in a task that may be killed behind one of them."""

    def batches() -> Iterator[pa.RecordBatch]:
        for at in range(0, len(ids), size):
            if at >= most:
                raise Killed
            part = ids[at : at + size]
            yield pa.RecordBatch.from_pydict({"n": part, "m": part})

    task = Task(options.target, 0, replayable=True)
    return publish_batches(options, mapping, task, batches(), refuse)


@pytest.mark.parametrize("mapping", [BY_ID, WHOLE], ids=["ids", "lanes"])
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_task_that_was_killed_runs_again_with_batches_of_another_size(
    redis_server: EmbeddedRedis, mapping: Mapping, partitions: int
) -> None:
    topic = f"t{partitions}-{'ids' if mapping is BY_ID else 'lanes'}"
    options = read_options({"url": redis_server.url, "namespace": "rows", "topic": topic})
    ids = [f"m{n}" for n in range(4100)]
    with Client(redis_server.url, namespace="rows") as client:
        client.admin.create_topic(topic, partitions=partitions)

        with pytest.raises(Killed):
            publish(options, mapping, ids, 700, most=2800)
        before = stored(client, topic)
        again = publish(options, mapping, ids, 900)

        assert 1000 <= before <= 2800
        assert (again.rows, again.sent, again.known) == (4100, 4100 - before, before)
        assert stored(client, topic) == 4100
        if mapping is WHOLE:  # nothing may be sent again
            close_epoch(options, Task(topic, 0, replayable=True), 1)
        last = publish(options, mapping, ids, 4100)
        assert (last.rows, last.sent, last.known) == (4100, 0, 4100)


@pytest.mark.parametrize("mapping", [WHOLE, IN_ORDER], ids=["lanes", "in order"])
def test_nothing_overtakes_what_was_refused(redis_server: EmbeddedRedis, mapping: Mapping) -> None:
    topic = f"full-{'ids' if mapping is IN_ORDER else 'lanes'}"
    options = read_options({"url": redis_server.url, "namespace": "rows", "topic": topic})
    with Client(redis_server.url, namespace="rows") as client:
        client.admin.create_topic(topic)
        client.admin.set_topic(topic, max_messages=1200)
        with pytest.raises(QueueFull, match="full"):
            publish(options, mapping, [f"m{n}" for n in range(1600)], 400)
        assert stored(client, topic) == 1000


def stored(client: Client, topic: str) -> int:
    return sum(one.stored for one in client.admin.stats(topic).topics)
