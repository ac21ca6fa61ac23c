"""Spark reads a history as a batch, beside a bare redis-py loop over the same entries."""

import statistics
import time
from typing import Any

import redis

from benchmarks.crew import Crew, Job
from benchmarks.figures import Figures
from benchmarks.servers import Server
from benchmarks.workload import TOPIC, bodies, publish_all
from rqretry import RetryPolicy
from rqretry.config import Settings
from rqretry.keys import PartitionKeys

ROUNDS = 3
EVENTS = 6
"""Of a message that fails once: publish, lease, fail, promote, lease, succeed."""
PAGE = 1000


def spark_read(messages: int | None) -> Figures:
    """Rows per second of all 19 columns, with what it costs to plan the read."""
    count = messages or 100_000
    policy = RetryPolicy.fixed("10ms")
    with Server() as server:
        publish_all(server.url, bodies(count))
        with Crew(Job(server.url, "fails_once", options={"policy": policy})) as crew:
            crew.wait_for(2 * count)
            crew.finish()
        rates = _rates(server, count * EVENTS)
    ratios = [spark / bare for spark, bare in rates]
    return Figures(
        rate=statistics.median(spark for spark, _ in rates),
        checked=True,
        floor_ratio=statistics.median(ratios),
        more={
            "bare_per_s": statistics.median(bare for _, bare in rates),
            "least_ratio": min(ratios),
        },
    )


def _rates(server: Server, rows: int) -> list[tuple[float, float]]:
    """Spark's and the loop's rate, in turns, after a round that warms both up."""
    from rqretry.spark import session  # noqa: PLC0415 - the other scenarios need no Java

    spark = session("benchmark", "local[2]")
    try:
        history = spark.read.format("rqretry").options(url=server.url, topic=TOPIC).load()
        assert history.count() == rows, f"{history.count()} events and not {rows}"
        found = []
        for _ in range(ROUNDS + 1):
            started = time.perf_counter()
            history.write.format("noop").mode("overwrite").save()
            took = time.perf_counter() - started
            started = time.perf_counter()
            assert _bare_loop(server) == rows
            found.append((rows / took, rows / (time.perf_counter() - started)))
    finally:
        spark.stop()
    return found[1:]


def _bare_loop(server: Server) -> int:
    """XRANGE from one end to the other, and a tuple for each message of each entry."""
    keys, at, rows = PartitionKeys(Settings.read(None, None).namespace, TOPIC, 0), "-", 0
    with redis.Redis(port=server.port) as client:  # noqa: TID251 - it is the floor
        while page := _page(client, keys.events, at):
            made: list[tuple[Any, ...]] = []
            for entry_id, fields in page:
                verb, group, worker = (fields[name].decode() for name in (b"e", b"g", b"w"))
                ids = fields[b"i"].decode().split(" ")
                notes = fields[b"d"].decode().split(" ") if fields[b"d"] else [None] * len(ids)
                said = fields[b"b"].split(b"\n") if verb == "fail" else [None] * len(ids)
                made += [
                    (entry_id, verb, group, worker, *row)
                    for row in zip(ids, notes, said, strict=True)
                ]
            rows += len(made)
            at = f"({page[-1][0].decode()}"
    return rows


def _page(client: Any, key: str, at: str) -> list[tuple[bytes, dict[bytes, bytes]]]:
    found: list[tuple[bytes, dict[bytes, bytes]]] = client.xrange(key, min=at, count=PAGE)
    return found
