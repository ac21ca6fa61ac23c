"""The progress of a Spark job while it runs."""

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

Progress = Callable[[int, int], None]
"""Called with how many tasks are done, and how many there are."""
_EVERY_S = 0.5


@contextmanager
def watched(spark: SparkSession, tasks: int, progress: Progress | None) -> Iterator[None]:
    """Report the progress of the jobs that run inside the block."""
    if progress is None:
        yield
        return
    context, group, stop = spark.sparkContext, uuid.uuid4().hex, threading.Event()
    context.setJobGroup(group, "rqretry", interruptOnCancel=True)

    def look() -> None:
        tracker = context.statusTracker()
        while not stop.wait(_EVERY_S):
            done = 0
            for job in tracker.getJobIdsForGroup(group):
                info = tracker.getJobInfo(job)
                stages = [tracker.getStageInfo(stage) for stage in (info.stageIds if info else [])]
                done += sum(stage.numCompletedTasks for stage in stages if stage)
            progress(min(done, tasks), tasks)

    thread = threading.Thread(target=look, name="rqretry-progress", daemon=True)
    thread.start()
    try:
        yield
        progress(tasks, tasks)
    finally:
        stop.set()
        thread.join()
