"""Columns of Arrow as the bytes of messages, without a Python object for each value.

A value that occurs again and again in a column is packed once, and a row is its packed fields one
behind the other. What comes out is what the codec makes of the same rows as dicts.
"""

from collections.abc import Sequence
from itertools import repeat

import msgpack
import pyarrow as pa
import pyarrow.compute as pc

from rqretry.core.envelope import encode
from rqretry.core.limits import MAX_BODY_BYTES
from rqretry.spark.values import values_of

_HEAD = encode(None)[:-1]
"""An envelope up to its body."""


def pack_structs(rows: pa.StructArray) -> list[bytes] | None:
    """`encode_all` of the rows as dicts; None if they need one encoding each.

    That is so where one is null or large, and where a field is nested or holds what JSON has no
    number for.
    """
    fields = [rows.type.field(number) for number in range(rows.type.num_fields)]
    if not fields or rows.null_count or len({field.name for field in fields}) < len(fields):
        return None
    columns: list[Sequence[bytes]] = []
    for field, column in zip(fields, rows.flatten(), strict=True):
        packed = _pack_column(field.name, column)
        if packed is None:
            return None
        columns.append(packed)
    head = _HEAD + msgpack.Packer().pack_map_header(len(fields))
    made = [*map(b"".join, zip(repeat(head, len(rows)), *columns, strict=True))]
    return made if max(map(len, made), default=0) <= MAX_BODY_BYTES else None


def _pack_column(name: str, column: pa.Array) -> list[bytes] | None:
    """Name and value of each row."""
    type_ = column.type
    if pa.types.is_nested(type_):
        return None
    if pa.types.is_floating(type_):
        if not pc.all(pc.is_finite(column), min_count=0).as_py():
            return None
        return _pack(name, column)
    if pa.types.is_null(type_):
        return _pack(name, column)
    found = pc.dictionary_encode(column, null_encoding="encode")
    if len(found.dictionary) * 2 > len(column):  # most occur once
        return _pack(name, column)
    packed = _pack(name, found.dictionary)
    return [*map(packed.__getitem__, found.indices.to_numpy().tolist())]


def _pack(name: str, values: pa.Array) -> list[bytes]:
    pack = msgpack.Packer().pack
    key = pack(name)
    return [key + pack(value) for value in values_of(values)]
