"""Parquet files written whole or not at all, on any file system that Arrow knows."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from rqretry.core.errors import ConfigError, show
from rqretry.spark.hadoop_folder import HIDDEN, is_uri, plain_path

SUFFIX = ".parquet"


def absolute(location: str) -> str:
    """A path that means the same to the JVM and to tasks: their working directories differ."""
    return location if is_uri(location) else str(Path(location).absolute())


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder; it can be sent to tasks.

    Attributes:
        location: An absolute path, or a URI such as "s3://bucket/archive".
    """

    location: str

    def open(self) -> tuple[fs.FileSystem, str]:
        """The file system and the path in it. Raises ConfigError."""
        plain = plain_path(self.location)
        uri = plain if is_uri(plain) else Path(plain).as_uri()
        try:
            system, path = fs.FileSystem.from_uri(uri)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise ConfigError(
                f"tasks cannot write to {show(self.location)} ({show(str(error))}): name a folder"
                " that all machines share, or one that Arrow knows, such as s3://bucket/folder"
            ) from error
        return system, path.rstrip("/")

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
