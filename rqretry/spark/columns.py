"""The columns of the data source, by kind; names and types are a contract (docs/spark.md)."""

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegralType,
    MapType,
    StringType,
    StructType,
)

from rqretry.core.errors import InvalidArgument, show
from rqretry.spark.options import DEAD_LETTERS, HISTORY, MESSAGES, Options

_TIME = pa.timestamp("us", "UTC")
_TEXTS = pa.list_(pa.string())
_HISTORY: list[tuple[str, pa.DataType]] = [
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.string()),
    ("event", pa.string()),
    ("event_time", _TIME),
    ("message_id", pa.string()),
    ("group", pa.string()),
    ("attempt", pa.int32()),
    ("worker", pa.string()),
    ("outcome", pa.string()),
    ("error_type", pa.string()),
    ("error_message", pa.string()),
    ("fingerprint", pa.string()),
    ("level", pa.int32()),
    ("due_time", _TIME),
    ("trace_id", pa.string()),
    ("tag", pa.string()),
    ("keys", _TEXTS),
    ("message_group", pa.string()),
    ("entry", pa.int64()),
    ("buffer_seconds", pa.float64()),
    ("handler_seconds", pa.float64()),
]
_MESSAGE: list[tuple[str, pa.DataType]] = [
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("id", pa.string()),
    ("body", pa.string()),
    ("raw", pa.binary()),
    ("tag", pa.string()),
    ("keys", _TEXTS),
    ("headers", pa.map_(pa.string(), pa.string())),
    ("message_group", pa.string()),
    ("published_at", _TIME),
]
_ERROR: list[tuple[str, pa.DataType]] = [
    ("attempt", pa.int32()),
    ("at", _TIME),
    ("cause", pa.string()),
    ("error_type", pa.string()),
    ("error_message", pa.string()),
    ("fingerprint", pa.string()),
    ("worker", pa.string()),
    ("seconds", pa.float64()),
]
_DEATH: list[tuple[str, pa.DataType]] = [
    ("group", pa.string()),
    ("cause", pa.string()),
    ("deliveries", pa.int32()),
    ("error_type", pa.string()),
    ("error_message", pa.string()),
    ("fingerprint", pa.string()),
    ("dead_since", _TIME),
    ("first_attempt_at", _TIME),
    ("last_attempt_at", _TIME),
    ("errors", pa.list_(pa.struct(_ERROR))),
]
_KINDS = {HISTORY: _HISTORY, MESSAGES: _MESSAGE, DEAD_LETTERS: _MESSAGE + _DEATH}
WRITABLE: dict[str, tuple[type[DataType], ...]] = {
    "id": (StringType, IntegralType),
    "tag": (StringType,),
    "keys": (StringType, ArrayType),
    "headers": (MapType,),
    "message_group": (StringType,),
}
"""The optional columns of a write, and the types they may have; delay is checked apart."""


def schema_of(options: Options) -> StructType:
    """All columns of a read."""
    columns = [
        (name, type_)
        for name, type_ in _KINDS[options.kind]
        if name != "headers" or options.include_headers
    ]
    return from_arrow_schema(pa.schema(columns))


def arrow_schema(options: Options, wanted: StructType) -> pa.Schema:
    """The columns that a read must return: all, or those of the schema that the user gave.

    Raises:
        InvalidArgument: The user's schema names a column that there is not, or another type.
    """
    known = {column.name: column for column in schema_of(options).fields}
    for column in wanted.fields:
        found = known.get(column.name)
        if found is None:
            names = ", ".join(known)
            raise InvalidArgument(
                f"there is no column {show(column.name)} in kind {options.kind}; it has {names}"
            )
        if found.dataType != column.dataType:
            raise InvalidArgument(
                f"column {show(column.name)} is {found.dataType.simpleString()},"
                f" not {column.dataType.simpleString()}"
            )
    return to_arrow_schema(wanted, timezone="UTC")
