"""Archives as tests write, kill and read them, in both formats."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from rqretry import Client
from rqretry.spark import ArchiveSummary, archive
from rqretry.spark.archive_job import DELTA, FORMATS, PARQUET
from tests.edges.spark.pipeline import QUICK, Pipeline

START = datetime(2026, 11, 21, tzinfo=UTC)
EVIL = "<script>alert('x')</script> & more"
SETTLED = ("succeed", "fail")
Step = tuple[int, str, str, str | None, int | None, str | None, *tuple[str, ...]]
"""The second, message, event, group, attempt and outcome; and the error's text, if not EVIL."""
WHOLE = "0000-0000000000000.000000.000000-9999999999999.000000.000000.parquet"
"""A file that says to hold everything."""
COLUMNS = ["topic", "partition", "offset"]
PROGRAM = """
import json, sys, threading
from rqretry.spark import archive, session
output, url, namespace, settings = sys.argv[1:]
spark = session("archive", "local[3]", json.loads(settings))
sys.stdin.readline()
def follow(format):
    archive(spark, f"{output}/{format}", url=url, namespace=namespace, format=format, follow=True,
            interval=0.1, max_events=2000)
for format in ("parquet", "delta"):
    threading.Thread(target=follow, args=[format]).start()
"""


def where(pipeline: Pipeline) -> dict[str, Any]:
    return {"url": pipeline.url, "namespace": pipeline.namespace}


def run(pipeline: Pipeline, output: Path | str, topics: str = "*", **more: Any) -> ArchiveSummary:
    return archive(pipeline.spark, str(output), topics, **{**where(pipeline), **more})


def archived(output: Path) -> list[str]:
    """The events of Parquet files, as a reader sees them that knows nothing of Spark."""
    return names_of(pq.read_table(output, columns=COLUMNS))


def in_table(output: Path, version: int | None = None) -> list[str]:
    """The events of a Delta table, as a reader sees them that knows nothing of us."""
    return names_of(DeltaTable(output, version=version).to_pyarrow_table(columns=COLUMNS))


def history(pipeline: Pipeline) -> list[str]:
    return names_of(pipeline.read("*").select(*COLUMNS).toArrow())


def names_of(table: Any) -> list[str]:
    return sorted("{topic}/{partition}/{offset}".format(**row) for row in table.to_pylist())


READERS: dict[str, Callable[[Path], list[str]]] = {PARQUET: archived, DELTA: in_table}


def forget_last_commit(output: Path) -> None:
    """As if Spark had been killed before it noted that the last batch is stored."""
    commits = output / "_checkpoint" / "commits"
    newest = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    (commits / str(newest)).unlink()


@contextmanager
def following(pipeline: Pipeline, output: Path) -> Iterator[subprocess.Popen[str]]:
    """The command, in processes of its own."""
    given = ["--follow", "--interval", "0.2s", "--master", "local[2]", "--json"]
    for name, value in QUICK.items():
        given += ["--conf", f"{name}={value}"]
    server = ["--url", pipeline.url, "--namespace", pipeline.namespace]
    command = [sys.executable, "-m", "rqretry", "pipeline", "archive", str(output)]
    with subprocess.Popen(
        [*command, *given, *server],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            _kill(process)


@contextmanager
def watched(read: Callable[[Path], list[str]], output: Path) -> Iterator[list[int]]:
    """Reads an archive again and again: each event once, and none that was there goes away."""
    done, counts, wrong = threading.Event(), list[int](), list[str]()

    def look() -> None:
        seen: set[str] = set()
        while not done.wait(0.5):
            if grown(output):
                events = read(output)
                if len(events) > len(set(events)) or not seen <= set(events):
                    wrong.append(f"{len(events)} rows, {len(seen - set(events))} missing")
                seen = set(events)
                counts.append(len(events))

    reader = threading.Thread(target=look)
    reader.start()
    try:
        yield counts
    finally:
        done.set()
        reader.join()
    assert wrong == []


@contextmanager
def loaded(pipeline: Pipeline) -> Iterator[None]:
    """Messages come and are consumed."""
    done = threading.Event()

    def load() -> None:
        with Client(pipeline.url, namespace=pipeline.namespace) as client:
            consumer = client.simple_consumer("t", group="g", create_group=True)
            while not done.wait(0.2):
                client.publish_many("t", list(range(30)))
                consumer.ack(consumer.receive(max_messages=32, invisible_duration=60, wait=0))

    worker = threading.Thread(target=load)
    worker.start()
    try:
        yield
    finally:
        done.set()
        worker.join()


def kill_archives(pipeline: Pipeline, output: Path, kills: int, waiting: int) -> None:
    """Archives of both formats in one driver, killed under load, one after the other.

    Readers look at the archives meanwhile.

    Args:
        pipeline: What is archived.
        output: A folder for each format is there.
        kills: How many drivers.
        waiting: How many have started their JVM, which takes longest, before it is their turn.
    """
    pipeline.client.admin.create_topic("t", 2)
    with ExitStack() as stack:
        stack.enter_context(loaded(pipeline))
        for format_ in FORMATS:
            stack.enter_context(watched(READERS[format_], output / format_))
        drivers = [stack.enter_context(driver(pipeline, output)) for _ in range(waiting)]
        for number in range(kills):
            if number + waiting < kills:
                drivers.append(stack.enter_context(driver(pipeline, output)))
            _kill_when_grown(drivers[number], output, 1 + number % 3)


@contextmanager
def driver(pipeline: Pipeline, output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Archives in processes of their own, which begin when they are asked to."""
    settings = json.dumps({**QUICK, "spark.local.dir": str(output.parent)})
    given = [str(output), pipeline.url, pipeline.namespace, settings]
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(output.parent / "compiled")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # each of its Pythons would compile again
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *given],
        env=environment,
        start_new_session=True,
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield process
        finally:
            _kill(process)


def grown(output: Path) -> int:
    """How many batches an archive has."""
    commits = output.glob("_delta_log/*.json") if output.name == DELTA else output.glob("t*/*/*")
    return len(list(commits))


def _kill(process: subprocess.Popen[Any]) -> None:
    """Driver and JVM at once."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _kill_when_grown(process: subprocess.Popen[bytes], output: Path, batches: int) -> None:
    """Let archives begin, and kill them while they write."""
    before = {name: grown(output / name) for name in FORMATS}
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    wait_until(
        lambda: all(grown(output / name) >= before[name] + batches for name in FORMATS), process
    )
    _kill(process)


def wait_until(condition: Callable[[], Any], process: subprocess.Popen[Any]) -> None:
    """Wait for what a process does."""
    deadline = time.monotonic() + 250
    while not condition():
        assert process.poll() is None, "the archive ended by itself"
        assert time.monotonic() < deadline, "the archive did not begin"
        time.sleep(0.05)


def written(tmp_path: Path, *steps: Step) -> str:
    """An archive of these steps."""
    rows = [
        {
            "partition": 0,
            # 9 comes before 10 in time, and behind it as text.
            "offset": f"{second}-0:{place}",
            "event": event,
            "event_time": START + timedelta(seconds=second),
            "message_id": message,
            "group": group,
            "attempt": attempt,
            "outcome": outcome,
            "error_type": "ValueError" if event == "fail" else None,
            "error_message": (*text, EVIL)[0] if event == "fail" else None,
            "fingerprint": "f" * 16 if event == "fail" else None,
            "entry": place + 1,
            "buffer_seconds": 0.25 if event in SETTLED else None,
            "handler_seconds": 0.5 if event in SETTLED else None,
        }
        for place, (second, message, event, group, attempt, outcome, *text) in enumerate(steps)
    ]
    kinds = {
        "partition": pa.int32(),
        "attempt": pa.int32(),
        "event_time": pa.timestamp("us", "UTC"),
        "entry": pa.int64(),
        "buffer_seconds": pa.float64(),
        "handler_seconds": pa.float64(),
    }
    names = list(rows[0])
    fields = [(name, kinds.get(name, pa.string())) for name in names]
    folder = tmp_path / "history" / "topic=7" / "date=2026-11-21"
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(fields)), folder / WHOLE)
    return str(tmp_path / "history")
