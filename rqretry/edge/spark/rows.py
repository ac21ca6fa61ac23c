"""Rows of a DataFrame as messages: which column is what, and what of a row cannot be published."""

import json
from collections.abc import Mapping as Mapping_
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import ArrayType, BinaryType, NumericType, StringType, StructType

from rqretry.edge.spark.columns import WRITABLE
from rqretry.edge.spark.values import check_type, values_of
from rqretry.errors import InvalidArgument, RqretryError, show
from rqretry.message import OutgoingMessage

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
    """The column that holds a line that is no row; it is no part of a body."""

    @property
    def id_column(self) -> str | None:
        """The column of the ids, if the rows bring their own."""
        return dict(self.columns).get(ID)


def map_columns(schema: StructType, id_column: str | None) -> Mapping:
    """How a DataFrame with a `body` is written. Raises InvalidArgument, telling the column."""
    fields = {column.name: column.dataType for column in schema.fields}
    if BODY not in fields:
        raise InvalidArgument(
            f"the rows have no column body, only {', '.join(map(show, fields)) or 'none'}:"
            " make one, such as struct(*).alias('body')"
        )
    kind = fields.pop(BODY)
    if not isinstance(kind, BinaryType):
        check_type(BODY, kind)
    if id_column is not None and id_column not in fields:
        raise InvalidArgument(f"the rows have no column {show(id_column)}, which idColumn names")
    known = {name: name for name in (*WRITABLE, DELAY) if name in fields}
    if id_column is not None:
        known[ID] = id_column
    unknown = [name for name in fields if name not in known.values()]
    if unknown:
        raise InvalidArgument(
            f"there is no place in a message for column {show(unknown[0])}: a write takes body,"
            f" {', '.join(WRITABLE)} and {DELAY}; put it into the body, or drop it"
        )
    for part, column in known.items():
        _check_part(part, column, fields[column])
    return Mapping(BODY, isinstance(kind, StringType), tuple(known.items()))


def map_row(schema: StructType, columns: Mapping_[str, str | None], corrupt: str) -> Mapping:
    """How whole rows are written, with some of their columns as parts of the message too.

    Raises:
        InvalidArgument: A column is not there, or cannot be what it is to be.
    """
    fields = {column.name: column.dataType for column in schema.fields}
    broken = corrupt if fields.pop(corrupt, None) is not None else None
    for name, kind in fields.items():
        check_type(name, kind)
    named = {part: column for part, column in columns.items() if column is not None}
    for part, column in named.items():
        if column not in fields:
            known = ", ".join(map(show, fields)) or "none"
            raise InvalidArgument(
                f"there is no column {show(column)} in the files; they have {known}"
            )
        _check_part(part, column, fields[column])
    return Mapping(None, False, tuple(named.items()), broken)  # noqa: FBT003


def _check_part(part: str, column: str, kind: Any) -> None:
    if part == DELAY:
        fits = isinstance(kind, NumericType | StringType)
        wanted = "a number of seconds, or text such as 1m30s"
    else:
        fits = isinstance(kind, WRITABLE[part])
        if isinstance(kind, ArrayType):
            fits = isinstance(kind.elementType, StringType)
        wanted = " or ".join(one.__name__.removesuffix("Type").lower() for one in WRITABLE[part])
    if not fits:
        raise InvalidArgument(
            f"column {show(column)} is {kind.simpleString()}; it must be {wanted}"
        )


Item = Any
"""A body, or an OutgoingMessage: what publish takes."""


class RowError(RqretryError):
    """Raised for a row that cannot be published; says why."""


def items_of(batch: pa.RecordBatch, mapping: Mapping) -> list[Item | RowError]:
    """Each row as something to publish, or what is wrong with it."""
    bodies = _bodies(batch, mapping)
    parts = {part: _part(batch.column(column), part) for part, column in mapping.columns}
    if not parts:
        return bodies
    names = list(parts)
    rows = zip(bodies, zip(*parts.values(), strict=True), strict=True)
    return [_item(body, dict(zip(names, values, strict=True))) for body, values in rows]


def _bodies(batch: pa.RecordBatch, mapping: Mapping) -> list[Any]:
    if mapping.body is None:
        return _whole_rows(batch, mapping.corrupt)
    found = values_of(batch.column(mapping.body))
    return [_parsed(text) for text in found] if mapping.body_is_json else found


def _whole_rows(batch: pa.RecordBatch, corrupt: str | None) -> list[Any]:
    if corrupt is None:
        return values_of(batch.to_struct_array())
    lines = batch.column(corrupt).to_pylist()
    rows = values_of(batch.drop_columns([corrupt]).to_struct_array())
    return [
        row if line is None else RowError(f"the line {show(line)} is no row of its file")
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
    return array.to_pylist()  # type: ignore[no-any-return]


def _item(body: Any, parts: dict[str, Any]) -> Item | RowError:
    if isinstance(body, RowError):
        return body
    if parts.get(ID, "") is None:
        return RowError("the row has no id: it is null")
    keys = parts.get("keys")
    keys = () if keys is None else keys
    return OutgoingMessage(
        body=body,
        id=parts.get(ID),
        tag=parts.get("tag"),
        keys=keys,
        headers=parts.get("headers"),
        message_group=parts.get("message_group"),
        delay=parts.get(DELAY),
    )
