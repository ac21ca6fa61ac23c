"""archive: every event once, in files that any Parquet reader can read, whatever is killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

from rqretry import Client, StoreUnavailable, TopicNotFound
from rqretry.spark import ArchiveSummary, DataLoss, archive
from rqretry.spark.archive_files import books_in
from rqretry.spark.archive_job import wait_patiently
from rqretry.spark.compaction import finish_merges, merge_small
from rqretry.spark.parquet_files import Folder
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.edges.spark.pipeline import QUICK, Pipeline

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

KILLS = 10
WAITING = 3
"""Drivers that have started their JVM, which takes most of a round, before it is their turn."""
PROGRAM = """
import json, sys
from rqretry.spark import archive, session
output, url, namespace, settings = sys.argv[1:]
spark = session("archive", "local[2]", json.loads(settings))
sys.stdin.readline()
archive(spark, output, url=url, namespace=namespace, follow=True, interval=0.1, max_events=2000)
"""


def run(pipeline: Pipeline, output: Path, topics: str = "*", **more: Any) -> ArchiveSummary:
    where = {"url": pipeline.url, "namespace": pipeline.namespace}
    return archive(pipeline.spark, str(output), topics, **{**where, **more})


def archived(output: Path) -> list[str]:
    """The events of the archive, as a reader sees them that knows nothing of Spark."""
    table = pq.read_table(output, columns=["topic", "partition", "offset"])
    return sorted("{topic}/{partition}/{offset}".format(**row) for row in table.to_pylist())


def history(pipeline: Pipeline) -> list[str]:
    rows = pipeline.read("*").select("topic", "partition", "offset").toArrow().to_pylist()
    return sorted("{topic}/{partition}/{offset}".format(**row) for row in rows)


@pytest.mark.campaign
def test_an_archive_goes_on_behind_its_files_where_the_checkpoint_is_lost(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    pipeline.client.publish_many("t", list(range(20)))
    run(pipeline, tmp_path)
    shutil.rmtree(tmp_path / "_checkpoint")
    pipeline.client.publish("t", 1)
    assert run(pipeline, tmp_path).events == 1
    again = run(pipeline, tmp_path)
    assert (again.events, again.files) == (0, 0)
    assert archived(tmp_path) == history(pipeline)


@pytest.mark.campaign
def test_a_batch_that_runs_again_writes_the_same_files_also_after_they_were_merged(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    for n in range(5):
        pipeline.client.publish("t", n)
    run(pipeline, tmp_path, max_events=1, compact=False)
    folder = Folder(str(tmp_path))
    before = [book.path for book in books_in(folder)]
    assert len(before) == 5
    commits = tmp_path / "_checkpoint" / "commits"
    newest = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    (commits / str(newest)).unlink()
    run(pipeline, tmp_path, max_events=1, compact=False)
    assert [book.path for book in books_in(folder)] == before

    (commits / str(newest)).unlink()
    assert merge_small(folder, least=2) == 4
    run(pipeline, tmp_path, max_events=1, compact=False)
    assert len(books_in(folder)) == 1
    assert archived(tmp_path) == history(pipeline)


@pytest.mark.campaign
def test_a_merge_that_was_cut_off_is_put_right(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(4):
        pipeline.client.publish("t", n)
    run(pipeline, tmp_path, max_events=1, compact=False)
    folder = Folder(str(tmp_path))

    def cut(_folder: Folder, _names: list[str]) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Folder, "delete", cut)
        with pytest.raises(KeyboardInterrupt):
            merge_small(folder)
    assert len(archived(tmp_path)) == 8
    finish_merges(folder)
    assert archived(tmp_path) == history(pipeline)
    assert len(books_in(folder)) == 1
    assert not list((tmp_path / "_merging").iterdir())


@pytest.mark.campaign
def test_history_that_was_trimmed_unarchived_is_an_error_unless_reported(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    pipeline.client.publish("t", 0)
    run(pipeline, tmp_path)
    pipeline.redis.hset(pipeline.meta("t"), "limit", 1)
    for n in range(3):
        pipeline.client.publish("t", n)
    with pytest.raises(DataLoss, match="was trimmed up to"):
        run(pipeline, tmp_path)
    done = run(pipeline, tmp_path, fail_on_data_loss=False)
    assert done.events == 1
    assert done.lags[0].dropped == 3


def test_a_server_or_topic_that_is_not_there_is_one_sentence(
    redis_server: EmbeddedRedis, tmp_path: Path
) -> None:
    no_spark: Any = None
    with pytest.raises(StoreUnavailable, match="unreachable"):
        archive(no_spark, str(tmp_path), url="redis://127.0.0.1:1")
    with pytest.raises(TopicNotFound, match="there is no topic 'none'"):
        archive(no_spark, str(tmp_path), "none", url=redis_server.url)


class Query:
    """One that ends at once, or fails."""

    def __init__(self, *ends: str) -> None:
        self.ends = list(ends)

    def awaitTermination(self, _seconds: float) -> bool:  # noqa: N802 - Spark's name
        end = self.ends.pop(0)
        if end:
            raise StreamingQueryException(end)
        return True

    def stop(self) -> None:
        """It has ended."""


def test_a_machine_too_busy_to_start_python_in_time_is_given_more_of_it() -> None:
    slow = "[STREAM_FAILED] terminated with exception: Python worker failed to connect back."
    query: Any = Query(slow, slow, "")
    wait_patiently(lambda: query, None)
    assert query.ends == []

    query = Query("something else", "")
    with pytest.raises(StreamingQueryException, match="something else"):
        wait_patiently(lambda: query, None)

    query = Query(*[slow] * 9)
    with pytest.raises(StreamingQueryException, match="connect back"):
        wait_patiently(lambda: query, None)
    assert len(query.ends) == 3


@pytest.mark.chaos
@pytest.mark.campaign
@pytest.mark.timeout(1800)
def test_an_archive_killed_again_and_again_under_load_has_every_event_once(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    """As Redis has counted them, and for a reader that knows nothing of Spark."""
    done, output = threading.Event(), tmp_path / "out"

    def load() -> None:
        with Client(pipeline.url, namespace=pipeline.namespace) as client:
            consumer = client.simple_consumer("t", group="g", create_group=True)
            while not done.wait(0.2):
                client.publish_many("t", list(range(30)))
                consumer.ack(consumer.receive(max_messages=32, invisible_duration=60, wait=0))

    pipeline.client.admin.create_topic("t", 2)
    worker = threading.Thread(target=load)
    worker.start()
    try:
        with ExitStack() as stack:
            drivers = [stack.enter_context(driver(pipeline, output)) for _ in range(WAITING)]
            for number in range(KILLS):
                if number + WAITING < KILLS:
                    drivers.append(stack.enter_context(driver(pipeline, output)))
                kill_when_it_has_grown(drivers[number], output, files=1 + number % 3)
    finally:
        done.set()
        worker.join()
    run(pipeline, output)
    assert archived(output) == history(pipeline)
    verbs = pq.read_table(output, columns=["event"]).column("event").to_pylist()
    assert Counter(verbs) == counted(pipeline, "t", "g")


def counted(pipeline: Pipeline, topic: str, group: str) -> dict[str, int]:
    """How many events of each verb there were, as the partitions' counters say."""
    found: Counter[str] = Counter()
    for number in range(2):
        key = pipeline.events(topic, number).replace(":events", ":counters")
        counters = {name.decode(): int(n) for name, n in pipeline.redis.hgetall(key).items()}
        names = {"publish": "publish", "lease": f"lease:{group}", "succeed": f"succeed:{group}"}
        found.update({verb: counters[name] for verb, name in names.items()})
    return found


@contextmanager
def driver(pipeline: Pipeline, output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """An archive in processes of its own, which begins when it is told to."""
    settings = json.dumps({**QUICK, "spark.local.dir": str(output.parent)})
    request_parts = [
        sys.executable,
        "-c",
        PROGRAM,
        str(output),
        pipeline.url,
        pipeline.namespace,
        settings,
    ]
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(output.parent / "compiled")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # each of its Pythons would compile again
    with subprocess.Popen(
        request_parts,
        env=environment,
        start_new_session=True,
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield process
        finally:
            kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Driver and JVM at once."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def kill_when_it_has_grown(process: subprocess.Popen[bytes], output: Path, files: int) -> None:
    """Let an archive begin, and kill it while it writes."""
    before = len(list(output.rglob("*.parquet")))
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    deadline = time.monotonic() + 250
    while len(list(output.rglob("*.parquet"))) < before + files:
        assert process.poll() is None, "the archive ended by itself"
        assert time.monotonic() < deadline, "the archive did not begin"
        time.sleep(0.05)
    kill(process)
