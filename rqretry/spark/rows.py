"""Rows of a DataFrame as messages: which column is what, and what of a row cannot be published."""

import json
from collections.abc import Mapping as Mapping_
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import ArrayType, BinaryType, NumericType, StringType, StructType

from rqretry.core.envelope import encode_all
from rqretry.core.errors import InvalidArgument, RqretryError, show
from rqretry.core.message import OutgoingMessage
from rqretry.core.typed_body import PLAIN
from rqretry.spark.arrow_encode import pack_structs
from rqretry.spark.columns import WRITABLE
from rqretry.spark.values import check_type, values_of

BODY, ID, DELAY = "body", "id", "delay"
JSON_TEXT, VALUE = "json", "value"


@dataclass(frozen=True)
class Mapping:
    """Which column of the rows is which part of a message.

    Attributes:
        body: The column of the body, or None for the whole row.
        body_is_json: The body's column holds JSON text.
        columns: The column of each other part that there is.
    """

    body: str | None
    body_is_json: bool
    columns: tuple[tuple[str, str], ...]
    corrupt: str | None = None
    """The column that holds a line that is not a row; it is not a part of a body."""

    @property
    def id_column(self) -> str | None:
        """The column of the ids, if the rows bring their own."""
        return dict(self.columns).get(ID)


def map_columns(schema: StructType, id_column: str | None) -> Mapping:
    """How a DataFrame with a `body` is written. Raises InvalidArgument with the column."""
    fields = {column.name: column.dataType for column in schema.fields}
    if BODY not in fields:
        raise InvalidArgument(
            f"the rows have no column body, only {', '.join(map(show, fields)) or 'none'}:"
            " make one, such as struct(*).alias('body')"
        )
    type_ = fields.pop(BODY)
    if not isinstance(type_, BinaryType):
        check_type(BODY, type_)
    if id_column is not None and id_column not in fields:
        raise InvalidArgument(f"the rows have no column {show(id_column)}, which idColumn names")
    known = {name: name for name in (*WRITABLE, DELAY) if name in fields}
    if id_column is not None:
        known[ID] = id_column
    unknown = [name for name in fields if name not in known.values()]
    if unknown:
        raise InvalidArgument(
            f"a message has no field for column {show(unknown[0])}: a write takes body,"
            f" {', '.join(WRITABLE)} and {DELAY}; put it into the body, or drop it"
        )
    for part, column in known.items():
        _check_part(part, column, fields[column])
    return Mapping(BODY, isinstance(type_, StringType), tuple(known.items()))


def map_row(schema: StructType, columns: Mapping_[str, str | None], corrupt: str) -> Mapping:
    """How whole rows are written, with some of their columns as parts of the message too.

    Raises:
        InvalidArgument: A column is not there, or cannot be what it is to be.
    """
    fields = {column.name: column.dataType for column in schema.fields}
    broken = corrupt if fields.pop(corrupt, None) is not None else None
    for name, type_ in fields.items():
        check_type(name, type_)
    named = {part: column for part, column in columns.items() if column is not None}
    for part, column in named.items():
        if column not in fields:
            known = ", ".join(map(show, fields)) or "none"
            raise InvalidArgument(
                f"there is no column {show(column)} in the files; they have {known}"
            )
        _check_part(part, column, fields[column])
    return Mapping(None, False, tuple(named.items()), broken)  # noqa: FBT003


def _check_part(part: str, column: str, type_: Any) -> None:
    if part == DELAY:
        fits = isinstance(type_, NumericType | StringType)
        wanted = "a number of seconds, or text such as 1m30s"
    else:
        fits = isinstance(type_, WRITABLE[part])
        if isinstance(type_, ArrayType):
            fits = isinstance(type_.elementType, StringType)
        names = (one.__name__.removesuffix("Type").lower() for one in WRITABLE[part])
        wanted = " or ".join(names).replace("integral", "a whole number")
    if not fits:
        raise InvalidArgument(
            f"column {show(column)} is {type_.simpleString()}; it must be {wanted}"
        )


class RowError(RqretryError):
    """Raised for a row that cannot be published, with the reason."""


class Rows:
    """A batch of rows as parts of messages.

    Attributes:
        parts: What there is beside the bodies, by name, in step with the rows.
    """

    def __init__(self, batch: pa.RecordBatch, mapping: Mapping) -> None:
        self._batch, self._mapping = batch, mapping
        self.parts = {part: _part(batch.column(name), part) for part, name in mapping.columns}

    def __len__(self) -> int:
        count: int = self._batch.num_rows
        return count

    def packed(self) -> list[bytes] | None:
        """The bodies as messages without other parts; None if one needs its own encoding.

        Raises:
            CodecError, MessageTooLarge: One of them cannot be published.
        """
        structs = self._structs()
        made = None if structs is None else pack_structs(structs)
        if made is not None:
            return made
        bodies = self._bodies()
        return encode_all(bodies) if PLAIN.issuperset(map(type, bodies)) else None

    def items(self) -> list[Any]:
        """Each row as publish takes it, a body or an OutgoingMessage; or a RowError."""
        bodies = self._bodies()
        if not self.parts:
            return bodies
        names = list(self.parts)
        rows = zip(bodies, zip(*self.parts.values(), strict=True), strict=True)
        return [_item(body, dict(zip(names, values, strict=True))) for body, values in rows]

    def _structs(self) -> pa.StructArray | None:
        """The bodies, where they are structs and none of them is a broken line."""
        batch, corrupt = self._batch, self._mapping.corrupt
        if self._mapping.body is not None:
            column = batch.column(self._mapping.body)
            return column if pa.types.is_struct(column.type) else None
        if corrupt is not None:
            if batch.column(corrupt).null_count < batch.num_rows:
                return None
            batch = batch.drop_columns([corrupt])
        return batch.to_struct_array()

    def _bodies(self) -> list[Any]:
        structs = self._structs()
        if structs is not None:
            return values_of(structs)
        if self._mapping.body is None:
            return _whole_rows(self._batch, str(self._mapping.corrupt))
        found = values_of(self._batch.column(self._mapping.body))
        return [_parsed(text) for text in found] if self._mapping.body_is_json else found


def _whole_rows(batch: pa.RecordBatch, corrupt: str) -> list[Any]:
    lines = batch.column(corrupt).to_pylist()
    rows = values_of(batch.drop_columns([corrupt]).to_struct_array())
    return [
        row if line is None else RowError(f"the line {show(line)} is not a row of its file")
        for row, line in zip(rows, lines, strict=True)
    ]


def _parsed(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        return RowError(f"the body {show(text)} is no JSON: {error}")


def _part(array: pa.Array, part: str) -> Sequence[Any]:
    if part == "headers":
        return [None if pairs is None else dict(pairs) for pairs in array.to_pylist()]
    if part == DELAY:
        return array.to_pylist()  # type: ignore[no-any-return]
    return values_of(array.cast(pa.string()) if pa.types.is_integer(array.type) else array)


def _item(body: Any, parts: dict[str, Any]) -> OutgoingMessage | RowError:
    if isinstance(body, RowError):
        return body
    if parts.get(ID, "") is None:
        return RowError("the row has no id: it is null")
    if parts.get("keys", ()) is None:
        parts["keys"] = ()
    return OutgoingMessage(body=body, **parts)
