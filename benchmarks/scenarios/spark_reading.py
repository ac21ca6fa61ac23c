"""Spark reads a history as a batch, beside a bare loop of redis-py over the same entries."""

import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import redis

from benchmarks.figures import Figures
from benchmarks.servers import MICROSECONDS, Server
from benchmarks.workers import Job, Workers, family_cpu_s
from benchmarks.workload import TOPIC, bodies, publish_all
from rqretry import RetryPolicy
from rqretry.core.message_id import spell_ids
from rqretry.core.settings import Settings
from rqretry.protocol.keys import PartitionKeys

ROUNDS, WARMING = 5, 3
EVENTS = 6
"""Of a message that fails once: publish, lease, fail, promote, lease, succeed."""
PAGE = 200
COLUMNS = (
    "offset string, event string, group string, worker string, message_id string, attempt int,"
    " error_message string"
)


@dataclass(frozen=True, slots=True)
class Round:
    """Of one turn of each way: rows per second, and CPU microseconds per row, of all processes."""

    spark: tuple[float, float]
    every_column: tuple[float, float]
    bare: tuple[float, float]


def spark_read(messages: int | None) -> Figures:
    """Rows per second of seven columns, and of all nineteen, with what it costs to plan the read.

    The floor is a loop of redis-py that makes the seven columns in Arrow, in one process.
    """
    count = messages or 100_000
    policy = RetryPolicy.fixed("10ms")
    with Server() as server:
        publish_all(server.url, bodies(count))
        with Workers(Job(server.url, "fails_once", options={"policy": policy})) as workers:
            workers.wait_for(2 * count)
            workers.finish()
        rounds = _rounds(server, count * EVENTS)
    by_floor = [one.spark[0] / one.bare[0] for one in rounds]
    every = [one.every_column[0] / one.bare[0] for one in rounds]
    return Figures(
        rate=statistics.median(one.spark[0] for one in rounds),
        checked=True,
        floor_ratio=statistics.median(by_floor),
        more={
            "least_ratio": min(by_floor),
            "every_column_by_floor": statistics.median(every),
            "every_column_per_s": statistics.median(one.every_column[0] for one in rounds),
            "bare_per_s": statistics.median(one.bare[0] for one in rounds),
            "spark_cpu_us": statistics.median(one.spark[1] for one in rounds),
            "every_column_cpu_us": statistics.median(one.every_column[1] for one in rounds),
            "bare_cpu_us": statistics.median(one.bare[1] for one in rounds),
        },
    )


def _rounds(server: Server, rows: int) -> list[Round]:
    """Each way in turns, after a round that warms all of them up."""
    from rqretry.spark import session  # noqa: PLC0415 - the other scenarios need no Java

    spark = session("benchmark", "local[2]")
    try:
        reader = spark.read.format("rqretry").options(url=server.url, topic=TOPIC)
        every, some = reader.load(), reader.schema(COLUMNS).load()
        _check_same(some, server, rows)
        ways = (partial(_to_nowhere, some), partial(_to_nowhere, every), partial(_bare, server))
        return [Round(*(_measured(way, rows) for way in ways)) for _ in range(ROUNDS + WARMING)][
            WARMING:
        ]
    finally:
        spark.stop()


def _check_same(some: Any, server: Server, rows: int) -> None:
    """The loop has earned to be compared with: it finds what Spark finds."""
    import pyarrow as pa  # noqa: PLC0415 - the other scenarios need no Arrow

    read, looped = some.toArrow(), pa.concat_tables(_pages(server))
    assert read.num_rows == rows, f"{read.num_rows} events and not {rows}"
    for name in looped.column_names:
        assert read.column(name).equals(looped.column(name)), f"column {name} differs"


def _measured(way: Callable[[], object], rows: int) -> tuple[float, float]:
    cpu, started = family_cpu_s(), time.perf_counter()
    way()
    took = time.perf_counter() - started
    return rows / took, (family_cpu_s() - cpu) / rows * MICROSECONDS


def _to_nowhere(rows: Any) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _bare(server: Server) -> int:
    """XRANGE from one end to the other; of each page the columns, in Arrow."""
    return sum(page.num_rows for page in _pages(server))


def _pages(server: Server) -> Iterator[Any]:
    """The columns as a careful programmer makes them: whole lists, no tuple for each row."""
    import pyarrow as pa  # noqa: PLC0415 - the other scenarios need no Arrow

    schema = pa.schema(
        [
            (name, pa.int32() if kind == "int" else pa.string())
            for name, kind in map(str.split, COLUMNS.split(", "))
        ]
    )
    keys, at = PartitionKeys(Settings.read(None, None).namespace, TOPIC, 0), "-"
    with redis.Redis(port=server.port) as client:  # noqa: TID251 - it is the floor
        while page := _page(client, keys.events, at):
            columns: list[list[Any]] = [[] for _ in schema]
            for entry_id, fields in page:
                name, verb = entry_id.decode(), fields[b"e"].decode()
                ids = (fields[b"i"] or spell_ids(fields[b"b"])).decode().split(" ")
                count = len(ids)
                parts: tuple[list[Any], ...] = (
                    [f"{name}:{place}" for place in range(count)],
                    [verb] * count,
                    [fields[b"g"] or None] * count,
                    [fields[b"w"] or None] * count,
                    ids,
                    _attempts(verb, fields[b"d"].decode(), count),
                    _messages(verb, fields[b"b"], count),
                )
                for column, part in zip(columns, parts, strict=True):
                    column.extend(part)
            yield pa.table(columns, schema=schema)
            at = f"({page[-1][0].decode()}"


def _attempts(verb: str, notes: str, count: int) -> list[int | None]:
    if verb not in ("lease", "succeed", "fail"):
        return [None] * count
    if not notes:
        return [1] * count
    if verb == "lease":
        return [1 if note == "-" else int(note.split(":")[1]) for note in notes.split(" ")]
    return [int(note.partition(",")[0]) for note in notes.split(" ")]


def _messages(verb: str, blob: bytes, count: int) -> list[str | None]:
    if verb != "fail" or not blob:
        return [None] * count
    return [json.loads(line).get("m") or None if line else None for line in blob.split(b"\n")]


def _page(client: Any, key: str, at: str) -> list[tuple[bytes, dict[bytes, bytes]]]:
    found: list[tuple[bytes, dict[bytes, bytes]]] = client.xrange(key, min=at, count=PAGE)
    return found
