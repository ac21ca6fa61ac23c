"""Spark reads a history as a batch, beside a bare loop of redis-py over the same entries."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import redis

from benchmarks.crew import Crew, Job, family_cpu_s
from benchmarks.figures import Figures
from benchmarks.servers import MICROSECONDS, Server
from benchmarks.workload import TOPIC, bodies, publish_all
from rqretry import RetryPolicy
from rqretry.config import Settings
from rqretry.keys import PartitionKeys

ROUNDS, WARMING = 5, 3
EVENTS = 6
"""Of a message that fails once: publish, lease, fail, promote, lease, succeed."""
PAGE = 100


COLUMNS = (
    "offset string, event string, group string, worker string, message_id string, attempt int,"
    " error_message string"
)
NAMES = [column.split()[0] for column in COLUMNS.split(", ")]
"""What the loop makes, too, though it leaves an attempt and an error as they are written."""


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
        with Crew(Job(server.url, "fails_once", options={"policy": policy})) as crew:
            crew.wait_for(2 * count)
            crew.finish()
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
        assert every.count() == rows, f"{every.count()} events and not {rows}"
        ways = (partial(_to_nowhere, some), partial(_to_nowhere, every), partial(_bare, server))
        return [Round(*(_measured(way, rows) for way in ways)) for _ in range(ROUNDS + WARMING)][
            WARMING:
        ]
    finally:
        spark.stop()


def _measured(way: Callable[[], object], rows: int) -> tuple[float, float]:
    cpu, started = family_cpu_s(), time.perf_counter()
    way()
    took = time.perf_counter() - started
    return rows / took, (family_cpu_s() - cpu) / rows * MICROSECONDS


def _to_nowhere(rows: Any) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _bare(server: Server) -> int:
    """XRANGE from one end to the other; of each page the columns, in Arrow."""
    import pyarrow as pa  # noqa: PLC0415 - the other scenarios need no Arrow

    keys, at, rows = PartitionKeys(Settings.read(None, None).namespace, TOPIC, 0), "-", 0
    with redis.Redis(port=server.port) as client:  # noqa: TID251 - it is the floor
        while page := _page(client, keys.events, at):
            made: list[tuple[Any, ...]] = []
            for entry_id, fields in page:
                name = entry_id.decode()
                verb, group, worker = (fields[field].decode() for field in (b"e", b"g", b"w"))
                ids = fields[b"i"].decode().split(" ")
                notes = fields[b"d"].decode().split(" ") if fields[b"d"] else [None] * len(ids)
                said = fields[b"b"].split(b"\n") if verb == "fail" else [None] * len(ids)
                made += [
                    (f"{name}:{place}", verb, group, worker, *row)
                    for place, row in enumerate(zip(ids, notes, said, strict=True))
                ]
            rows += pa.table(
                [pa.array(column) for column in zip(*made, strict=True)], NAMES
            ).num_rows
            at = f"({page[-1][0].decode()}"
    return rows


def _page(client: Any, key: str, at: str) -> list[tuple[bytes, dict[bytes, bytes]]]:
    found: list[tuple[bytes, dict[bytes, bytes]]] = client.xrange(key, min=at, count=PAGE)
    return found
