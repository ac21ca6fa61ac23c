"""The data source `rqretry`, as Spark sees it: read options, and make readers and writers."""

from collections.abc import MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from rqretry.core.errors import InvalidArgument, RqretryError, show
from rqretry.spark.batch_reader import BatchReader, PushingReader
from rqretry.spark.columns import arrow_schema, schema_of
from rqretry.spark.error_messages import plain_in_worker
from rqretry.spark.options import HISTORY, check_batch, check_stream, read_options
from rqretry.spark.rows import Mapping, map_columns
from rqretry.spark.sink import publishing_to
from rqretry.spark.stream_reader import RefusedReader, StreamReader
from rqretry.spark.writer import BatchWriter, StreamWriter


class RqretryDataSource(DataSource):
    """`format("rqretry")`: `spark.dataSource.register(RqretryDataSource)` makes it known.

    Batch and streaming reads of the history, batch reads of dead letters and stored messages, and
    batch and streaming writes (`append`), which publish. Options and columns: docs/spark.md.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Check every option; Spark makes one for each plan."""
        with plain_in_worker():
            self._read = read_options(options)

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "rqretry"

    def schema(self) -> StructType:
        """The columns of a read."""
        return schema_of(self._read)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        with plain_in_worker():
            options = check_batch(self._read)
            reader = PushingReader if options.push_filters else BatchReader
            return reader(options, arrow_schema(options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A streaming read."""
        try:
            options = check_stream(self._read)
            return StreamReader(options, arrow_schema(options, schema))
        except RqretryError as error:
            return RefusedReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        """A batch write."""
        with plain_in_worker():
            mapping = self._ready_to_write(schema, overwrite=overwrite)
            return BatchWriter(self._read, mapping)

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
    ) -> DataSourceStreamWriter:
        """A streaming write."""
        with plain_in_worker():
            mapping = self._ready_to_write(schema, overwrite=overwrite)
            return StreamWriter(self._read, mapping)

    def _ready_to_write(self, schema: StructType, *, overwrite: bool) -> Mapping:
        options = self._read
        if overwrite:
            raise InvalidArgument(
                'a topic cannot be overwritten: write with mode("append"), and with outputMode'
                ' "append" from a stream'
            )
        if options.kind != HISTORY:
            raise InvalidArgument(
                f"option kind {show(options.kind)} is for reads: a write publishes to the topic"
            )
        mapping = map_columns(schema, options.id_column)
        with publishing_to(options):  # reaches the server before any task does
            return mapping
