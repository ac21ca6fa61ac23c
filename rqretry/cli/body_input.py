"""Message bodies from the command line: strict JSON, lines of it, or raw bytes."""

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, BinaryIO, NoReturn

import click

from rqretry.core.envelope import encode
from rqretry.core.errors import CodecError, InvalidArgument, show

STANDARD_INPUT = "-"
_IN_MEMORY = 16 * 2**20


class BadLine(click.ClickException):
    """A line of a file that is not a message; nothing was published."""


def parse_json(text: str | bytes) -> Any:
    """Read JSON. Raises ValueError if it is none, or means two things at once."""
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{error.msg[:1].lower()}{error.msg[1:]} at column {error.colno}"
        ) from None
    except UnicodeDecodeError as error:
        byte = f"byte 0x{error.object[error.start]:02x} at position {error.start}"
        raise ValueError(
            f"it is no JSON in UTF-8 ({byte}); for bytes as they are give --raw"
        ) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def one_body(text: str | None, source: str | None, *, raw: bool) -> Any:
    """The body of one message, from --body or, raw, from a file; checked."""
    if raw:
        body: Any = _read_all(source) if text is None else text.encode(errors="surrogateescape")
    else:
        try:
            body = parse_json(text or "")
        except ValueError as error:
            reason = f"--body {show(text)} is not JSON: {error}; for plain text give --raw"
            raise click.UsageError(reason) from None
    try:
        encode(body)
    except CodecError as error:
        raise click.UsageError(f"--body cannot be sent: {error}") from None
    return body


@contextmanager
def opened(source: str) -> Iterator[BinaryIO]:
    """A file, or standard input kept so that it can be read twice."""
    with ExitStack() as stack:
        file = sys.stdin.buffer
        if source != STANDARD_INPUT:
            file = stack.enter_context(open(source, "rb"))  # noqa: PTH123 - its OSError names the file
        twice = source != STANDARD_INPUT and file.seekable()
        yield file if twice else stack.enter_context(_kept(file))


def check_lines(file: BinaryIO, source: str) -> int:
    """Read every line once; returns how many messages there are. Raises BadLine for a bad one."""
    count = 0
    for number, line in enumerate(file, start=1):
        if line.strip():
            _check_line(line, number, source)
            count += 1
    file.seek(0)
    return count


def read_lines(file: BinaryIO) -> Iterator[Any]:
    """The bodies of a checked file; blank lines are skipped."""
    return (parse_json(line) for line in file if line.strip())


def _check_line(line: bytes, number: int, source: str) -> None:
    try:
        encode(parse_json(line))
    except (ValueError, CodecError, InvalidArgument) as error:
        name = "standard input" if source == STANDARD_INPUT else source
        raise BadLine(
            f"line {number} of {name} cannot be published: {error}; nothing was published"
        ) from None


@contextmanager
def _kept(stream: BinaryIO) -> Iterator[BinaryIO]:
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as copy:
        while part := stream.read(2**20):
            copy.write(part)
        copy.seek(0)
        yield copy  # type: ignore[misc]


def _read_all(source: str | None) -> bytes:
    with opened(source or STANDARD_INPUT) as file:
        return file.read()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"it names {show(twice)} twice")
    return fields
