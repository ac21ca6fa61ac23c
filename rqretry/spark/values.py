"""Arrow columns as values that a message body can hold, column by column and not row by row."""

from datetime import date, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    MapType,
    NullType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from rqretry.core.errors import InvalidArgument, show

_PLAIN = (StringType, BooleanType, NumericType, DateType, TimestampType, TimestampNTZType, NullType)


def check_type(path: str, type_: DataType) -> None:
    """That values of a type can be part of a body. Raises InvalidArgument naming the column."""
    if isinstance(type_, StructType):
        names = type_.fieldNames()
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InvalidArgument(
                f"column {show(path)} has {show(twice)} twice, of which a JSON body would hold one:"
                " rename the other"
            )
        for column in type_.fields:
            check_type(f"{path}.{column.name}", column.dataType)
    elif isinstance(type_, ArrayType):
        check_type(f"{path}[]", type_.elementType)
    elif isinstance(type_, MapType):
        if not isinstance(type_.keyType, StringType):
            raise InvalidArgument(
                f"column {show(path)}: a map in a body needs keys that are strings"
            )
        check_type(f"{path}[]", type_.valueType)
    elif not isinstance(type_, _PLAIN):
        hint = (
            "encode it as text, or make it the whole body"
            if isinstance(type_, BinaryType)
            else "cast it to a string or a number"
        )
        raise InvalidArgument(
            f"column {show(path)} is {type_.simpleString()}, which a JSON body cannot hold: {hint}"
        )


def values_of(array: pa.Array) -> list[Any]:
    """The values; times as ISO 8601 in UTC, decimals as text, structs and maps as dicts."""
    type_ = array.type
    if pa.types.is_struct(type_):
        return _structs(array)
    if pa.types.is_map(type_):
        return _maps(array)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return _lists(array)
    if pa.types.is_timestamp(type_):
        form = "%Y-%m-%dT%H:%M:%SZ" if type_.tz else "%Y-%m-%dT%H:%M:%S"
        if type_.tz not in (None, "UTC"):
            array = array.cast(pa.timestamp(type_.unit, "UTC"))
        made: list[Any] = pc.strftime(array, format=form).to_pylist()
        return made
    if pa.types.is_date(type_) or pa.types.is_decimal(type_):
        array = array.cast(pa.string())
    return _listed(array)


def _listed(array: pa.Array) -> list[Any]:
    """What `to_pylist` gives, which makes a scalar of Arrow for each value first."""
    type_ = array.type
    if pa.types.is_string(type_) or pa.types.is_boolean(type_):
        texts: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
        return texts
    if not (pa.types.is_integer(type_) or pa.types.is_floating(type_)):
        others: list[Any] = array.to_pylist()
        return others
    numbers: list[Any] = array.fill_null(0).to_numpy(zero_copy_only=False).tolist()
    if array.null_count:
        for index in np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist():
            numbers[index] = None
    return numbers


def _structs(array: pa.Array) -> list[Any]:
    names = [array.type.field(n).name for n in range(array.type.num_fields)]
    columns = [values_of(column) for column in array.flatten()]
    rows: list[Any] = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    if not columns:
        rows = [{} for _ in range(len(array))]
    return _with_nulls(array, rows)


def _lists(array: pa.Array) -> list[Any]:
    offsets, inner = array.offsets.to_pylist(), values_of(array.values)
    rows: list[Any] = [inner[a:b] for a, b in pairwise(offsets)]
    return _with_nulls(array, rows)


def _maps(array: pa.Array) -> list[Any]:
    offsets = array.offsets.to_pylist()
    keys, items = array.keys.to_pylist(), values_of(array.items)
    rows: list[Any] = [dict(zip(keys[a:b], items[a:b], strict=True)) for a, b in pairwise(offsets)]
    return _with_nulls(array, rows)


def _with_nulls(array: pa.Array, rows: list[Any]) -> list[Any]:
    if array.null_count == 0:
        return rows
    valid = array.is_valid().to_pylist()
    return [row if there else None for row, there in zip(rows, valid, strict=True)]


def restored(value: Any, type_: pa.DataType) -> Any:
    """A value of a body as Arrow takes it for a type: what `values_of` made of it, undone."""
    if value is None:
        return None
    if pa.types.is_struct(type_):
        return {column.name: restored(value.get(column.name), column.type) for column in type_}
    if pa.types.is_map(type_):
        return [(key, restored(item, type_.item_type)) for key, item in value.items()]
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return [restored(item, type_.value_type) for item in value]
    if pa.types.is_timestamp(type_):
        return datetime.fromisoformat(value)
    if pa.types.is_date(type_):
        return date.fromisoformat(value)
    return Decimal(value) if pa.types.is_decimal(type_) else value
