"""Dead letters as lines of JSON, on standard output or in a new file."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import click

from rqretry.edge.cli.output import SCHEMA
from rqretry.errors import show

STANDARD_OUTPUT = "-"


@contextmanager
def destination(name: str) -> Iterator[TextIO]:
    """Standard output, or a new file; what could not be written to its end is not left behind."""
    if name == STANDARD_OUTPUT:
        yield sys.stdout
        return
    path = Path(name)
    try:
        stream = path.open("x", encoding="utf-8")
    except FileExistsError:
        reason = f"file {show(name)} is there already: remove it, or choose another name"
        raise click.ClickException(reason) from None
    try:
        with stream:
            yield stream
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def write_lines(stream: TextIO, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write one object a line; returns how many."""
    count = 0
    for row in rows:
        stream.write(json.dumps({"schema": SCHEMA, **row}, ensure_ascii=False) + "\n")
        count += 1
    stream.flush()
    return count
