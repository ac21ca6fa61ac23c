"""A folder on any file system that Hadoop knows, reached through the JVM as Spark itself does."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rqretry.core.errors import ConfigError, show
from rqretry.spark.error_messages import cause_of

HIDDEN = "_"
"""Readers of Parquet folders leave out names that begin with it."""
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_GLOB = re.compile(r"([\[\]{}*?\\])")
_LOCAL = "file"


class HadoopFolder:
    """A folder, which need not exist yet.

    A location without a scheme is on the file system where Spark puts such paths: by default on
    this machine, seen from the current folder.

    Attributes:
        uri: Its qualified name.

    Raises:
        ConfigError: Spark has no such file system, it is not there, or a file has this name.
    """

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._location, self._spark = location, spark
        with self._plain():
            jvm: Any = spark._jvm  # noqa: SLF001 - PySpark has no other way to Hadoop
            self._jvm = jvm
            hadoop: Any = spark._jsc.hadoopConfiguration()  # noqa: SLF001 - as above
            standard = self._jvm.org.apache.hadoop.fs.FileSystem.getDefaultUri(hadoop).getScheme()
            local = standard == _LOCAL and not is_uri(location)
            path = self._path(str(Path(location).absolute()) if local else location)
            self._system = path.getFileSystem(hadoop)
            qualified = self._system.makeQualified(path)
            self.uri = str(qualified.toString()).rstrip("/")
            taken = self._system.exists(qualified) and not self._system.isDirectory(qualified)
        if taken:
            raise ConfigError(f"{show(location)} is a file: name a folder")

    @property
    def pattern(self) -> str:
        """Its name where Spark and Hadoop take patterns."""
        return _GLOB.sub(r"\\\1", self.uri)

    def list(self, pattern: str) -> list[str]:
        """The files and folders below it that match, by their paths in it."""
        with self._plain():
            found = self._system.globStatus(self._path(f"{self.pattern}/{pattern}"))
            if not found:
                return []
            paths = self._jvm.org.apache.hadoop.fs.FileUtil.stat2Paths(found)
            sequence = self._jvm.scala.collection.immutable.ArraySeq.unsafeWrapArray(paths)
            names = sequence.mkString("\n").split("\n")  # one call, however many there are
        return [name.removeprefix(f"{self.uri}/") for name in names]

    def has(self, name: str) -> bool:
        """Whether there is a file or folder of this name."""
        with self._plain():
            return bool(self._system.exists(self._inside(name)))

    def read(self, name: str) -> str:
        """A small text file."""
        with self._plain():
            stream = self._system.open(self._inside(name))
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()

    def write(self, name: str, content: bytes) -> None:
        """A small file; one of that name is replaced."""
        with self._plain():
            stream = self._system.create(self._inside(name), True)  # noqa: FBT003 - Java's
            stream.write(content)
            stream.close()

    def beside(self, what: str) -> "HadoopFolder":
        """An empty folder on the same file system, where no reader looks.

        It is beside this one, since patterns such as `**` look into hidden folders, too; but in
        this one where there is no such place.
        """
        parent, _, name = self.uri.rpartition("/")
        with suppress(ConfigError):
            return HadoopFolder(self._spark, f"{parent}/{HIDDEN}{name}-{what}").emptied()
        return HadoopFolder(self._spark, f"{self.uri}/{HIDDEN}{what}").emptied()

    def emptied(self) -> "HadoopFolder":
        """The folder, there and with nothing in it."""
        self.delete()
        with self._plain():
            self._system.mkdirs(self._path(self.uri))
        return self

    def take(self, source: "HadoopFolder", name: str, to: str) -> None:
        """Move a file from another folder here, where no file has this name yet."""
        with self._plain():
            target = self._inside(to)
            self._system.mkdirs(target.getParent())
            if not self._system.rename(source._inside(name), target):  # noqa: SLF001
                raise ConfigError(f"{show(f'{self.uri}/{to}')} cannot be written")

    def delete(self) -> None:
        """Delete it, if it is there."""
        with self._plain():
            self._system.delete(self._path(self.uri), True)  # noqa: FBT003 - Java's

    def _inside(self, name: str) -> Any:
        return self._path(f"{self.uri}/{name}")

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(name)

    @contextmanager
    def _plain(self) -> Iterator[None]:
        try:
            yield
        except (Py4JError, PySparkException) as error:
            reason = cause_of(str(error))
            raise ConfigError(f"{show(self._location)} cannot be used: {reason}") from None


def is_uri(location: str) -> bool:
    """Whether a location names its file system."""
    return _URI.match(location) is not None


def plain_path(location: str) -> str:
    """A location without the scheme of this machine's files."""
    return re.sub(r"^file:/+", "/", location)


def local_path(location: str, what: str) -> Path:
    """A folder or file that must be on this machine. Raises ConfigError for any other."""
    path = plain_path(location)
    if is_uri(path):
        raise ConfigError(f"{show(location)} is not on this machine: {what} must be a local folder")
    return Path(path).absolute()


def versions_of(spark: SparkSession, uris: Iterable[str]) -> Iterator[str]:
    """Of each file: where it is, how large, and when it was written."""
    jvm: Any = spark._jvm  # noqa: SLF001 - PySpark has no other way to Hadoop
    hadoop: Any = spark._jsc.hadoopConfiguration()  # noqa: SLF001 - as above
    for uri in uris:
        path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(uri))
        found = path.getFileSystem(hadoop).getFileStatus(path)
        yield f"{uri} {found.getLen()} {found.getModificationTime()}"
