"""Parquet files written whole or not at all, on any file system that Arrow knows."""

import re
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from rqretry.core.errors import ConfigError, show

HIDDEN = "_"
"""Readers of Parquet folders leave out names that begin with it."""
SUFFIX = ".parquet"


def absolute(location: str) -> str:
    """A path that means the same to the JVM and to tasks: their working directories differ."""
    return location if "://" in location else str(Path(location).absolute())


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder; it can be sent to tasks.

    Attributes:
        location: An absolute path, or a URI such as "s3://bucket/archive".
    """

    location: str

    def open(self) -> tuple[fs.FileSystem, str]:
        """The file system and the path in it. Raises ConfigError."""
        uri = self.location if "://" in self.location else Path(self.location).as_uri()
        try:
            system, path = fs.FileSystem.from_uri(uri)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise ConfigError(
                f"{show(self.location)} cannot be used: {show(str(error))}"
            ) from error
        return system, path.rstrip("/")

    def list(self, below: str = "") -> list[str]:
        """The Parquet files below it that are not hidden, by their paths in it, in order."""
        system, root = self.open()
        base = f"{root}/{below}".rstrip("/")
        found = system.get_file_info(fs.FileSelector(base, recursive=True, allow_not_found=True))
        names = [one.path.removeprefix(f"{root}/") for one in found if one.type == fs.FileType.File]
        hidden = re.compile(rf"(^|/)[{HIDDEN}.]")
        return sorted(name for name in names if name.endswith(SUFFIX) and not hidden.search(name))

    @contextmanager
    def begin(self, folder: str, schema: pa.Schema) -> Iterator["Growing"]:
        """A file in a folder below it that has no name yet; without one it does not stay."""
        system, root = self.open()
        path = f"{root}/{folder}".rstrip("/")
        system.create_dir(path, recursive=True)
        temporary = f"{path}/{HIDDEN}{uuid.uuid4().hex}.part"
        writer = pq.ParquetWriter(temporary, schema, filesystem=system, compression="zstd")
        growing = Growing(system, path, temporary, writer)
        try:
            yield growing
        finally:
            growing.drop()

    def read(self, name: str) -> pa.Table:
        """A whole file."""
        system, root = self.open()
        return pq.read_table(f"{root}/{name}", filesystem=system, partitioning=None)

    def size(self, name: str) -> int:
        """The bytes of a file; 0 if it is not there."""
        system, root = self.open()
        return int(system.get_file_info(f"{root}/{name}").size or 0)

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; one that is gone already is not an error."""
        system, root = self.open()
        for name in names:
            if system.get_file_info(f"{root}/{name}").type == fs.FileType.File:
                system.delete_file(f"{root}/{name}")


@dataclass(slots=True)
class Growing:
    """A file under way: hidden until it gets its name, at once and as a whole."""

    system: fs.FileSystem
    path: str
    temporary: str
    writer: pq.ParquetWriter
    rows: int = 0
    named: bool = False

    def add(self, table: pa.Table | pa.RecordBatch) -> None:
        """More rows."""
        self.writer.write(table)
        self.rows += table.num_rows

    def name(self, name: str) -> None:
        """It is complete: give it its name. A file of that name is replaced."""
        self.writer.close()
        self.system.move(self.temporary, f"{self.path}/{name}")
        self.named = True

    def drop(self) -> None:
        """It is not wanted, unless it has its name."""
        if self.named:
            return
        self.writer.close()
        if self.system.get_file_info(self.temporary).type == fs.FileType.File:
            self.system.delete_file(self.temporary)
