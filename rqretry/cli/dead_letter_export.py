"""Dead letters as JSON lines, on standard output or in a new file."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TextIO

import click

from rqretry.admin.dead_letter_export import as_json
from rqretry.admin.dead_letter_filter import DeadLetterFilter, DeadLettersInOrder
from rqretry.admin.dead_letters import dead_letter_places
from rqretry.cli.output import SCHEMA, json_line
from rqretry.client import Client
from rqretry.core.dead_letter import DeadLetterRecord
from rqretry.core.errors import show
from rqretry.core.parts import parts_of
from rqretry.maintenance.process_exits import with_exits
from rqretry.protocol.command import MAX_BATCH

STANDARD_OUTPUT = "-"


@contextmanager
def destination(name: str) -> Iterator[TextIO]:
    """Standard output, or a new file."""
    with nullcontext(sys.stdout) if name == STANDARD_OUTPUT else new_file(name) as stream:
        yield stream


@contextmanager
def new_file(name: str) -> Iterator[TextIO]:
    """A file that was not there; what could not be written to its end is not left behind."""
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


def exported(
    client: Client, group: str, wanted: DeadLetterFilter, advance: Callable[[int], None]
) -> Iterator[dict[str, Any]]:
    """The chosen dead letters as JSON values, oldest first; a page per partition in memory."""
    for page in pages_of(client, group, wanted, with_bodies=True):
        yield from map(as_json, page)
        advance(len(page))


def pages_of(
    client: Client, group: str, wanted: DeadLetterFilter, *, with_bodies: bool
) -> Iterator[list[DeadLetterRecord]]:
    """The chosen dead letters, oldest first; a page per partition in memory."""
    perform = parts_of(client).store.perform
    places = perform(dead_letter_places(parts_of(client.admin).operations, group, wanted))
    source = DeadLettersInOrder(places, wanted, with_bodies=with_bodies)
    while found := perform(source.take(MAX_BATCH)):
        dead_letters = [dead_letter for dead_letter, _ in found]
        yield perform(with_exits(parts_of(client).catalog.keys, dead_letters))


def write_lines(stream: TextIO, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write one object a line; returns how many."""
    count = 0
    for row in rows:
        stream.write(json_line({"schema": SCHEMA, **row}, stream) + "\n")
        count += 1
    stream.flush()
    return count
