"""archive: every event once, in either format, whatever is killed."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from rqretry import StoreUnavailable, TopicNotFound
from rqretry.spark import DataLoss, archive, run_query
from rqretry.spark.archive_job import FORMATS
from rqretry.spark.report_job import open_archive
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.edges.spark.archives import (
    READERS,
    forget_last_commit,
    history,
    kill_archives,
    run,
)
from tests.edges.spark.pipeline import Pipeline

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

KILLS = 10
WAITING = 3
"""Drivers that have started their JVM, which takes most of a round, before it is their turn."""


@pytest.mark.campaign
@pytest.mark.parametrize("format_", FORMATS)
def test_an_archive_goes_on_behind_what_it_holds_where_the_checkpoint_is_lost(
    pipeline: Pipeline, tmp_path: Path, format_: str
) -> None:
    pipeline.client.publish_many("t", list(range(20)))
    run(pipeline, tmp_path, format=format_)
    shutil.rmtree(tmp_path / "_checkpoint")
    pipeline.client.publish("t", 1)
    assert run(pipeline, tmp_path, format=format_).events == 1
    again = run(pipeline, tmp_path, format=format_)
    assert (again.events, again.files) == (0, 0)
    assert READERS[format_](tmp_path) == history(pipeline)


@pytest.mark.campaign
@pytest.mark.parametrize("format_", FORMATS)
def test_a_quiet_batch_is_one_file_of_each_topic_and_is_there_once(
    pipeline: Pipeline, tmp_path: Path, format_: str
) -> None:
    topics = [f"t{n}" for n in range(5)]
    for topic in topics:
        pipeline.client.admin.create_topic(topic, 4)

    def publish_everywhere() -> None:
        for topic in topics:
            pipeline.client.publish_many(topic, list(range(40)))

    publish_everywhere()
    done = run(pipeline, tmp_path, format=format_, compact=False)
    assert (done.events, done.files) == (200, 5)
    publish_everywhere()
    done = run(pipeline, tmp_path, format=format_, compact=False)
    assert (done.events, done.files) == (200, 5)
    forget_last_commit(tmp_path)
    again = run(pipeline, tmp_path, format=format_, compact=False)
    assert (again.events, again.files) == (0, 0)
    shutil.rmtree(tmp_path / "_checkpoint")
    pipeline.client.publish("t3", 1)
    done = run(pipeline, tmp_path, format=format_, compact=False)
    assert (done.events, done.files, {lag.events for lag in done.lags}) == (1, 1, {0})
    assert READERS[format_](tmp_path) == history(pipeline)
    assert open_archive(pipeline.spark, str(tmp_path)).count() == 401


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
    run_query(lambda: query)
    assert query.ends == []

    query = Query("something else", "")
    with pytest.raises(StreamingQueryException, match="something else"):
        run_query(lambda: query)

    query = Query(*[slow] * 9)
    with pytest.raises(StreamingQueryException, match="connect back"):
        run_query(lambda: query)
    assert len(query.ends) == 3


@pytest.mark.chaos
@pytest.mark.campaign
@pytest.mark.timeout(1800)
def test_archives_killed_ten_times_under_load_have_every_event_once(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    """As Redis has counted them, in both formats; readers never see one twice, or miss one."""
    kill_archives(pipeline, tmp_path, KILLS, WAITING)
    known = counted(pipeline, "t", "g")
    for format_ in FORMATS:
        run(pipeline, tmp_path / format_, format=format_)
        assert READERS[format_](tmp_path / format_) == history(pipeline)
        verbs = open_archive(pipeline.spark, str(tmp_path / format_)).groupBy("event").count()
        assert known.items() <= {row["event"]: row["count"] for row in verbs.collect()}.items()


def counted(pipeline: Pipeline, topic: str, group: str) -> dict[str, int]:
    """How many events of each verb there were, as the partitions' counters say."""
    found: Counter[str] = Counter()
    for number in range(2):
        key = pipeline.events(topic, number).replace(":events", ":counters")
        counters = {name.decode(): int(n) for name, n in pipeline.redis.hgetall(key).items()}
        names = {"lease": f"lease:{group}", "succeed": f"succeed:{group}"}
        found.update({verb: counters[name] for verb, name in names.items()})
    return found
