"""What got worse: the tables of a report beside those of as long a time before."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

_KEY = ("topic", "group", "error_type", "fingerprint")
_FIGURES = ("died", "deliveries", "messages", "wasted_seconds")
_SCHEMA = pa.schema(
    [(name, pa.string()) for name in _KEY]
    + [
        (name + suffix, pa.float64() if name == "wasted_seconds" else pa.int64())
        for name in _FIGURES
        for suffix in ("", "_before")
    ]
)


def compared(now: Mapping[str, pa.Table], before: Mapping[str, pa.Table]) -> pa.Table:
    """Each group, and each error of what died, in both times; what got worse most comes first."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for suffix, tables in (("", now), ("_before", before)):
        for row in tables["groups"].to_pylist() + tables["dead"].to_pylist():
            key = tuple(row.get(name) for name in _KEY)
            found = rows.setdefault(key, dict(zip(_KEY, key, strict=True)))
            found |= {name + suffix: row[name] for name in _FIGURES if name in row}
    ordered = sorted(rows.values(), key=_change, reverse=True)
    made = [
        {
            column.name: row.get(column.name, None if column.name in _KEY else _absent(row, column))
            for column in _SCHEMA
        }
        for row in ordered
    ]
    return pa.Table.from_pylist(made, schema=_SCHEMA)


def _absent(row: Mapping[str, Any], column: pa.Field) -> int | None:
    """Nothing of a kind that a row has in one of the two times is 0."""
    name = column.name.removesuffix("_before")
    return 0 if name in row or f"{name}_before" in row else None


def _change(row: Mapping[str, Any]) -> tuple[float, ...]:
    changes = ((row.get(name) or 0) - (row.get(f"{name}_before") or 0) for name in _FIGURES)
    return tuple(float(change) for change in changes)
