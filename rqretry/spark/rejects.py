"""Rows that cannot be messages, put aside in Parquet files with the reason."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Self

import pyarrow as pa

from rqretry.core.errors import RqretryError
from rqretry.spark.parquet_files import SUFFIX, Folder, Growing
from rqretry.spark.task_context import Task

REASON = "rejected_because"


class Rejects:
    """One task's rejected rows: a file named after the task, written anew when it runs again."""

    def __init__(self, folder: Folder, task: Task) -> None:
        self._folder, self._name = folder, f"{task.producer}{SUFFIX}"
        self._batch: pa.RecordBatch | None = None
        self._indexes: list[int] = []
        self._reasons: list[str] = []
        self._file: Growing | None = None
        self._opened = ExitStack()

    def watching(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches that `add` gets the indexes of."""
        for batch in batches:
            self._batch = batch
            yield batch
            self._store()

    def add(self, index: int, error: RqretryError) -> None:
        """A row of the newest batch."""
        self._indexes.append(index)
        self._reasons.append(str(error))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        with self._opened:
            if self._file is not None and (error_type is None or error_type is GeneratorExit):
                self._file.name(self._name)

    def _store(self) -> None:
        if not self._indexes or self._batch is None:
            return
        rows = self._batch.take(pa.array(self._indexes))
        found = pa.Table.from_batches([rows]).append_column(REASON, pa.array(self._reasons))
        self._indexes, self._reasons = [], []
        if self._file is None:
            self._file = self._opened.enter_context(self._folder.begin("", found.schema))
        self._file.add(found)
