"""A task of Spark: by what name it publishes, and what became of its rows."""

import hashlib
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext


@dataclass(frozen=True, slots=True)
class Task:
    """Who publishes: the same whenever the task is run again.

    Attributes:
        job: The name of its query or job.
        partition: The number of its partition.
        epoch: The micro-batch, 0 for a batch job.
    """

    job: str
    partition: int
    epoch: int = 0
    replayable: bool = False
    """It may be run again as a whole: its query or job has a name that stays."""

    @property
    def producer(self) -> str:
        """The name of its lanes."""
        return f"spark-{short(self.job)}-{self.partition}"

    @property
    def id_prefix(self) -> str:
        """What its message ids begin with; the number of the row follows."""
        return short(f"{self.job} {self.partition} {self.epoch}") + "."


@dataclass(slots=True)
class Totals:
    """What became of the rows of a task.

    Attributes:
        rows: How many there were.
        sent: Published by this attempt.
        known: Published before, by another attempt or run.
        rejected: Not published, because they cannot be.
    """

    rows: int = 0
    sent: int = 0
    known: int = 0
    rejected: int = 0


def current_task() -> Any:
    """Spark's context of the task that this process runs."""
    context = TaskContext.get()
    assert context is not None
    return context


def short(text: str) -> str:
    """12 hexadecimal characters that stand for a text."""
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
