"""Rows that cannot be messages, put aside in Parquet files with the reason."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any, Self

import pyarrow as pa

from rqretry.core.envelope import decode
from rqretry.core.errors import RqretryError
from rqretry.protocol.publish import Prepared
from rqretry.spark.parquet_files import SUFFIX, Folder, Growing
from rqretry.spark.task_context import Task
from rqretry.spark.values import restored

REASON = "rejected_because"


class Rejects:
    """One task's rejected rows: a file named after the task, written anew when it runs again."""

    def __init__(self, folder: Folder, task: Task) -> None:
        self._folder, self._name = folder, f"{task.producer}{SUFFIX}"
        self._batch: pa.RecordBatch | None = None
        self._indexes: list[int] = []
        self._reasons: list[str] = []
        self._late: list[tuple[Any, str]] = []
        self._file: Growing | None = None
        self._opened = ExitStack()

    def watching(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches that `add` gets the indexes of."""
        for batch in batches:
            self._batch = batch
            yield batch
            self._store()

    def add(self, row: int | Prepared, error: RqretryError) -> None:
        """A row of the newest batch, or a message that was a row of any batch."""
        if isinstance(row, Prepared):
            self._late.append((decode(row.data).body, str(error)))
            return
        self._indexes.append(row)
        self._reasons.append(str(error))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        with self._opened:
            if error_type is None or error_type is GeneratorExit:
                self._store()
                if self._file is not None:
                    self._file.name(self._name)

    def _store(self) -> None:
        if self._batch is None:
            return
        if self._indexes:
            self._write(self._batch.take(pa.array(self._indexes)), self._reasons)
        if self._late:
            type_ = pa.struct(list(self._batch.schema))
            rows = pa.array([restored(body, type_) for body, _ in self._late], type_)
            self._write(pa.RecordBatch.from_struct_array(rows), [why for _, why in self._late])
        self._indexes, self._reasons, self._late = [], [], []

    def _write(self, rows: pa.RecordBatch, reasons: list[str]) -> None:
        found = pa.Table.from_batches([rows]).append_column(REASON, pa.array(reasons, pa.string()))
        if self._file is None:
            self._file = self._opened.enter_context(self._folder.begin("", found.schema))
        self._file.add(found)
