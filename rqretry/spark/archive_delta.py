"""The archive as a Delta Lake table: snapshots, time travel, compaction by the table's own verbs.

Spark writes the files of a batch; one transaction of the table adds them, and names the query and
the batch: one that is run again adds nothing. The table is kept by the package `deltalake`, which
needs no Java and so fits every release of Spark (docs/decisions/0122).
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from rqretry.core.errors import ConfigError, show
from rqretry.spark.archive_files import (
    StagedFile,
    Stored,
    committed,
    dated,
    last_events,
    read_files,
    staged,
)
from rqretry.spark.hadoop_folder import HadoopFolder, plain_path
from rqretry.spark.offsets import Positions

LOG = "_delta_log"
"""The folder that makes another one a table."""
_MERGED_BYTES = 128 * 1024 * 1024
_PARTITIONS = ["topic", "date"]
_READABLE = 1
"""Tables of a later protocol have deleted rows or renamed columns, which files do not show."""


class DeltaArchive:
    """An archive that is a Delta table.

    Args:
        spark: The session.
        folder: Where the table is, or will be.

    Raises:
        ConfigError: The extra `delta` is not installed.
    """

    def __init__(self, spark: SparkSession, folder: HadoopFolder) -> None:
        if find_spec("deltalake") is None:
            raise ConfigError("a Delta table needs Delta Lake: run pip install 'rqretry[delta]'")
        self._spark, self.folder = spark, folder
        import deltalake  # noqa: PLC0415 - an extra, which most archives do without

        self._lake: Any = deltalake
        self._location = plain_path(folder.uri)

    def ends(self) -> Positions:
        """Where the table continues: what its query has committed, else behind what it holds."""
        known = committed(self.folder)
        if known is not None:
            return known
        rows = self.rows()
        return {} if rows is None else last_events(rows, {})

    def rows(self) -> DataFrame | None:
        """The events of the newest snapshot; None if there is no table."""
        if not self.folder.has(LOG):
            return None
        with self._plain():
            table = self._lake.DeltaTable(self._location)
            version, actions = table.protocol().min_reader_version, table.get_add_actions()
        if version > _READABLE:
            raise ConfigError(
                f"the Delta table {show(self.folder.uri)} was changed by a program that deletes"
                " rows without writing files, or renames columns: read it with that program"
            )
        return read_files(self._spark, self.folder, actions.column("path").to_pylist())

    def store(self, batch: DataFrame, number: int, query: str) -> Stored:
        """Add a batch, unless the table has it."""
        schema = self._lake.Schema.from_arrow(to_arrow_schema(dated(batch).schema, timezone="UTC"))
        with self._plain():
            table = self._table(schema)
            if self.has_batch(table, query, number):
                return Stored()
        with staged(self.folder, batch) as (place, found):
            for one in found:
                self.folder.take(place, one.path, one.path)
            if not found:
                return Stored()
            with self._plain():
                transaction = self._lake.Transaction(query, number)
                table.create_write_transaction(
                    [self._action(one) for one in found],
                    "append",
                    schema,
                    partition_by=_PARTITIONS,
                    commit_properties=self._lake.CommitProperties(app_transactions=[transaction]),
                )
        return Stored(sum(one.events for one in found), len(found))

    def has_batch(self, table: Any, query: str, number: int) -> bool:
        """Whether a transaction of the table has added this batch."""
        known = table.transaction_version(query)
        return known is not None and known >= number

    def compact(self) -> int:
        """Merge small files; what no snapshot of the last week has is deleted."""
        if not self.folder.has(LOG):
            return 0
        with self._plain():
            table = self._lake.DeltaTable(self._location)
            done = table.optimize.compact(target_size=_MERGED_BYTES, max_concurrent_tasks=2)
            if done["numFilesRemoved"]:
                table.vacuum(dry_run=False)
        return int(done["numFilesRemoved"] - done["numFilesAdded"])

    def _table(self, schema: Any) -> Any:
        """The table, made where there is none, with the columns that this release adds."""
        create = self._lake.DeltaTable.create
        table = create(self._location, schema, mode="ignore", partition_by=_PARTITIONS)
        known = {field.name for field in table.schema().fields}
        added = [field for field in schema.fields if field.name not in known]
        if added:
            table.alter.add_columns(added)
        return table

    def _action(self, one: StagedFile) -> Any:
        topic, _, date = one.books[0].shelf
        return self._lake.transaction.AddAction(
            one.path,
            one.bytes,
            {"topic": topic, "date": date},
            max(book.last.ms for book in one.books),
            data_change=True,
            stats=json.dumps({"numRecords": one.events}),
        )

    @contextmanager
    def _plain(self) -> Iterator[None]:
        try:
            yield
        except (self._lake.exceptions.DeltaError, OSError, ValueError) as error:
            raise ConfigError(
                f"the Delta table {show(self.folder.uri)} cannot be used: {show(str(error))}"
            ) from error
