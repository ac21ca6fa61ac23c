"""Spark publishes a Parquet file of flights, beside a plain loop over it in one process."""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.figures import Figures
from benchmarks.servers import MICROSECONDS, Server
from benchmarks.workers import family_cpu_s
from rqretry import Client
from rqretry.core.settings import Settings
from rqretry.demo.flights import load
from rqretry.protocol.keys import PartitionKeys

ROUNDS = 3
ID = "flight_id"
_TOPIC = "flights"
_BATCH = 10_000
_ROW_GROUP = 20_000


@dataclass(frozen=True, slots=True)
class Round:
    """One turn of each way: rows per second, and CPU seconds of everything, the server too."""

    plain: tuple[float, float]
    naive: tuple[float, float]
    lanes: tuple[float, float]
    ids: tuple[float, float]


def spark_ingest(messages: int | None) -> Figures:
    """Rows per second of the job `ingest`, by a lane for each task, and by the rows' own ids.

    The floor is a loop of pyarrow and `publish_many` in one process. `naive` is that loop in the
    tasks of Spark, which publishes twice what runs twice.
    """
    flights = load(messages)
    with Server() as server, TemporaryDirectory() as folder:
        path = Path(folder) / "flights.parquet"
        _write(path, ({ID: flight.id, **flight.claim} for flight in flights))
        rounds = _rounds(server, str(path), len(flights))
    rates = {
        f"{way.name}_per_s": statistics.median(getattr(one, way.name)[0] for one in rounds)
        for way in fields(Round)
    }
    cpu = {
        f"{way.name}_cpu_us": statistics.median(getattr(one, way.name)[1] for one in rounds)
        * (MICROSECONDS / len(flights))
        for way in fields(Round)
    }
    by_floor = [one.lanes[0] / one.plain[0] for one in rounds]
    return Figures(
        rate=rates["lanes_per_s"],
        checked=True,
        floor_ratio=statistics.median(by_floor),
        more={
            "least_ratio": min(by_floor),
            "lanes_by_naive": statistics.median(one.lanes[0] / one.naive[0] for one in rounds),
            "ids_by_naive": statistics.median(one.ids[0] / one.naive[0] for one in rounds),
            "ids_by_floor": statistics.median(one.ids[0] / one.plain[0] for one in rounds),
            **rates,
            **cpu,
        },
    )


def _write(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    import pyarrow as pa  # noqa: PLC0415 - the other scenarios need no Arrow
    import pyarrow.parquet as pq  # noqa: PLC0415

    pq.write_table(pa.Table.from_pylist([*rows]), path, row_group_size=_ROW_GROUP)


def _rounds(server: Server, path: str, count: int) -> list[Round]:
    """Each way in turns, after a round that warms all of them up."""
    from rqretry.spark import ingest, session  # noqa: PLC0415 - the other scenarios need no Java

    spark = session("benchmark", "local[2]")
    ways: list[Callable[[], object]] = [
        partial(_publish_file, server.url, path),
        partial(_naive, spark, server.url, path),
        partial(ingest, spark, path, _TOPIC, url=server.url),
        partial(ingest, spark, path, _TOPIC, url=server.url, id=ID),
    ]
    try:
        return [Round(*(_measured(server, way, count) for way in ways)) for _ in range(ROUNDS + 1)][
            1:
        ]
    finally:
        spark.stop()


def _measured(server: Server, way: Callable[[], object], count: int) -> tuple[float, float]:
    server.client.flushdb()
    cpu, started = family_cpu_s(), time.perf_counter()
    way()
    took, cpu = time.perf_counter() - started, family_cpu_s() - cpu
    keys = PartitionKeys(Settings.read(None, None).namespace, _TOPIC, 0)
    stored = server.client.hlen(keys.bodies)
    assert stored == count, f"{stored} messages and not {count}"
    return count / took, cpu


def _publish_file(url: str, path: str) -> None:
    import pyarrow.parquet as pq  # noqa: PLC0415

    _publish(url, pq.ParquetFile(path).iter_batches(_BATCH))


def _publish(url: str, batches: Iterator[Any]) -> int:
    rows = 0
    with Client(url) as client:
        for batch in batches:
            rows += len(client.publish_many(_TOPIC, batch.to_pylist()))
    return rows


def _naive(spark: Any, url: str, path: str) -> None:
    from rqretry.spark.input_files import open_files  # noqa: PLC0415

    with open_files(spark, path, "parquet", None, {}) as rows:  # cut as ingest cuts it
        rows.mapInArrow(partial(_publish_part, url), "n long").collect()


def _publish_part(url: str, batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa  # noqa: PLC0415

    yield pa.RecordBatch.from_pydict({"n": [_publish(url, batches)]})
