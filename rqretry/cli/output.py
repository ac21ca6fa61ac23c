"""What commands print: JSON for programs, tables for people, without colour when piped."""

import base64
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TextIO

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rqretry.admin import views
from rqretry.cli.streams import takes_all_text
from rqretry.core.errors import escape

SCHEMA = 1
"""Of every JSON object that the command line prints."""
_PIPED_WIDTH = 10_000

Part = str | Table
"""Of a page: a line, or a table."""
Cells = tuple[Sequence[str], Iterable[Sequence[object]]]
"""Of a table: columns and rows."""


def print_json(fields: Mapping[str, Any]) -> None:
    """One object on one line, with its schema first."""
    click.echo(json_line({"schema": SCHEMA, **fields}))


def print_summary(summary: Any, show: Callable[[Any], None], *, as_json: bool) -> None:
    """A dataclass as JSON, or as `show` prints it."""
    if as_json:
        print_json(asdict(summary))
    else:
        show(summary)


def fields_of(record: object, names: str) -> dict[str, Any]:
    """These attributes, by name; the names are divided by blanks."""
    return {name: getattr(record, name) for name in names.split()}


def headers_text(headers: Mapping[str, str]) -> str | None:
    """Headers on one line; None without any."""
    return " ".join(f"{name}={value}" for name, value in headers.items()) or None


def json_line(value: object, stream: TextIO | None = None) -> str:
    """JSON on one line, with escapes for what is not printable, or the stream cannot encode."""
    every = not takes_all_text(stream or sys.stdout)
    text = json.dumps(value, ensure_ascii=every, default=str)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def clean(value: object, limit: int | None = None) -> str:
    """Text for a terminal: control characters escaped, cut at `limit`; a tuple with blanks."""
    text = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    if limit is not None and len(text) > limit:
        text = text[: limit - 3] + "..."
    return escape(text)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table; numbers to the right. Column names that begin with # are of numbers."""
    terminal().print(table_of(columns, rows))


def print_records(columns: Sequence[str], records: Iterable[Mapping[str, object]]) -> None:
    """The same, of records that have a value for each column."""
    names = [name.lstrip("#") for name in columns]
    print_table(columns, ([record[name] for name in names] for record in records))


def print_list(
    head: Mapping[str, object], key: str, records: Sequence[Any], table: Cells, *, as_json: bool
) -> None:
    """Records, if there are any, as a table of columns and rows; with `as_json` behind the head."""
    if as_json:
        print_json({**head, key: records})
    elif records:
        print_table(*table)


def print_page(page: Iterable[Part]) -> None:
    """Lines and tables, one below the other."""
    for part in page:
        if isinstance(part, str):
            click.echo(clean(part))
        else:
            terminal().print(part)


def table_of(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """The same table, not printed yet."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in columns:
        justify: Any = "right" if name.startswith("#") else "left"
        table.add_column(name.lstrip("#"), justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*(Text(clean(cell)) for cell in row))
    return table


def rows_of(records: Iterable[object], names: str) -> Iterator[list[object]]:
    """Cells for a table: these attributes of each record, dates for what ends in _ms."""
    for record in records:
        yield [_cell(name, getattr(record, name)) for name in names.split()]


def _cell(name: str, value: Any) -> object:
    if name.endswith("_ms"):
        value = date(value)
    return "" if value is None else value


def print_fields(pairs: Iterable[tuple[str, object]]) -> None:
    """Names and values, one pair per line; a value None is left out."""
    shown = [(name, value) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        click.echo(f"{name:<{width}}  {clean(value)}")


def note(sentence: str) -> None:
    """Print a sentence for people, on standard error."""
    click.echo(clean(sentence), err=True)


def terminal(*, err: bool = False) -> Console:
    """Where tables and bars go: as wide as the terminal, plain and never wrapped when piped."""
    stream = sys.stderr if err else sys.stdout
    width = None if stream.isatty() else _PIPED_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def body_fields(body: Any) -> dict[str, Any]:
    """A body for JSON; raw bytes as base64."""
    if isinstance(body, bytes):
        return {"body": base64.b64encode(body).decode(), "encoding": "base64"}
    return {"body": body, "encoding": "json"}


def body_text(body: Any) -> str:
    """A body on one line; raw bytes as base64."""
    if isinstance(body, bytes):
        return f"base64:{base64.b64encode(body).decode()}"
    return json.dumps(body, ensure_ascii=False)


def date(at_ms: int | None) -> str | None:
    """Milliseconds since the epoch as ISO 8601 in UTC; None stays None."""
    return None if at_ms is None else views.date(at_ms)
