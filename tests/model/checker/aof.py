"""Reads a server's append-only file: what it did, one block per script call.

A script, or a transaction, stands there as one MULTI … EXEC; a call that wrote once as one command.
The server needs `aof-use-rdb-preamble no`, so that a base file is readable too, and
`auto-aof-rewrite-percentage 0`, so that nothing is folded away; see CHECKED_SERVER.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CHECKED_SERVER = ("--aof-use-rdb-preamble", "no", "--auto-aof-rewrite-percentage", "0")
"""What a server whose run is to be checked is started with, beside `appendonly yes`."""

LINE_END = b"\r\n"


class Block(NamedTuple):
    """What one call wrote."""

    number: int
    """Of the block in the journal, from 1; of a base file, which has no order, 0."""
    commands: list[list[str]]
    """Words as latin-1 text, so that no byte is lost."""


def aof_files(directory: Path) -> list[tuple[Path, bool]]:
    """The files of the newest append-only file under a server's directory, in order.

    Each comes with whether it is a base: a state, not a history. Raises FileNotFoundError.
    """
    folder, only = directory / "appendonlydir", directory / "appendonly.aof"
    if only.exists():  # Redis 6.2 has one file
        return [(only, False)]
    manifest = folder / "appendonly.aof.manifest"
    files = []
    for line in manifest.read_text(encoding="utf-8").splitlines():
        request_parts = line.split()
        fields = dict(zip(request_parts[::2], request_parts[1::2], strict=True))
        if fields["type"] != "h":
            files.append((int(fields["seq"]), folder / fields["file"], fields["type"] == "b"))
    files.sort(key=lambda file: (not file[2], file[0]))
    return [(path, is_base) for _, path, is_base in files if path.exists()]


def read_blocks(directory: Path) -> Iterator[Block]:
    """Every block of a server's append-only file, without a tail that was cut off.

    Raises:
        FileNotFoundError: There is no append-only file there.
        ValueError: A file is damaged, or not a plain append-only file.
    """
    number = 0
    for path, is_base in aof_files(directory):
        for commands in parse(path.read_bytes()):
            number += not is_base
            yield Block(0 if is_base else number, commands)


def parse(data: bytes) -> Iterator[list[list[str]]]:
    """Blocks of the bytes of one file."""
    open_block: list[list[str]] | None = None
    for request_parts in _entries(data):
        if request_parts[0].upper() == "MULTI":
            open_block = []
        elif request_parts[0].upper() == "EXEC":
            if open_block:
                yield open_block
            open_block = None
        elif request_parts[0].upper() == "SELECT":
            if request_parts[1] != "0":
                raise ValueError(f"database {request_parts[1]} is used; rqretry uses database 0")
        elif open_block is not None:
            open_block.append(request_parts)
        else:
            yield [request_parts]


def _entries(data: bytes) -> Iterator[list[str]]:
    at, end = 0, len(data)
    while at < end:
        mark = data[at : at + 1]
        if mark != b"*":
            raise ValueError(f"byte {at} of the append-only file is not the start of a command")
        line_end = data.find(LINE_END, at)
        if line_end < 0:
            return
        request_parts, at = _arguments(data, line_end + 2, int(data[at + 1 : line_end]))
        if request_parts is None:
            return
        yield request_parts


def _arguments(data: bytes, at: int, count: int) -> tuple[list[str] | None, int]:
    """The words of a command; None where the file ends within it."""
    request_parts = []
    for _ in range(count):
        line_end = data.find(LINE_END, at)
        if line_end < 0:
            return None, at
        length = int(data[at + 1 : line_end])
        first = line_end + 2
        at = first + length + 2
        if at > len(data):
            return None, at
        request_parts.append(data[first : first + length].decode("latin-1"))
    return request_parts, at
