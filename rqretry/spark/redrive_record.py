"""The selection of a redrive, on disk until all of it is sent, so that a killed run can resume.

The record has what was chosen, a line for each: very many need not fit into memory. Whether one of
these was sent is read from Redis: a message that was sent back is no longer dead since that moment,
which no crash can change.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rqretry.client import Client
from rqretry.core.errors import ConfigError, show
from rqretry.core.parts import parts_of
from rqretry.spark.hadoop_folder import local_path

FOLDER = "redrive-state"


class ChosenDeadLetter(NamedTuple):
    """One death of one message: once it was sent back it is no longer this dead letter."""

    topic: str
    partition: int
    id: str
    dead_since_ms: int

    @property
    def line(self) -> str:
        """As a line of the record; names and ids hold no tabs."""
        return "\t".join(map(str, self)) + "\n"

    @classmethod
    def read(cls, line: str) -> "ChosenDeadLetter":
        """The one of a line. Raises ValueError."""
        topic, partition, id_, since_ms = line.rstrip("\n").split("\t")
        return cls(topic, int(partition), id_, int(since_ms))


@dataclass(slots=True)
class Choice:
    """A selection of dead letters, with a preview; which they are is in the record.

    Attributes:
        group: Their group.
        where: The condition.
        count: How many.
        kinds: How many there are of each topic, cause and error; the 20 most frequent.
        samples: Five of them, one of each kind first; texts are cut.
        resumed: An earlier run made the choice and did not finish it.
    """

    group: str
    where: str
    count: int
    kinds: list[dict[str, Any]] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)
    resumed: bool = False


class Record:
    """The files that remember a choice until all of it was sent.

    Args:
        folder: Where such files are.
        client: A choice belongs to its server and namespace,
        group: to its group,
        where: and to its condition.

    Attributes:
        path: The choice; while it is there, so is what was chosen.
        chosen_path: What was chosen, the oldest death first.
    """

    def __init__(self, folder: str, client: Client, group: str, where: str) -> None:
        settings = parts_of(client).settings
        parts = json.dumps([settings.url.safe, settings.namespace, group, where])
        name = hashlib.blake2b(parts.encode(), digest_size=8).hexdigest()
        self.folder = local_path(folder, "the state of a redrive")
        self.path = self.folder / f"redrive-{name}.json"
        self.chosen_path = self.path.with_suffix(".chosen")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other runs with this folder out. Raises ConfigError if one is under way."""
        with _plain_file(self.folder, "used"):
            self.folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.folder, os.O_RDONLY)
        try:
            _lock(handle, self.folder)
            try:
                yield
            finally:
                if not self.path.exists():
                    self.chosen_path.unlink(missing_ok=True)
        finally:
            os.close(handle)

    def read(self) -> Choice | None:
        """What an earlier run chose and did not finish. Raises ConfigError."""
        try:
            with _plain_file(self.path, "read"):
                stored = json.loads(self.path.read_text(encoding="utf-8"))
            choice = Choice(**stored, resumed=True)
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            raise _damaged(self.path, str(error)) from None
        return choice

    def chosen(self) -> Iterator[ChosenDeadLetter]:
        """What was chosen, one after the other. Raises ConfigError."""
        try:
            with (
                _plain_file(self.chosen_path, "read"),
                self.chosen_path.open(encoding="utf-8") as file,
            ):
                yield from map(ChosenDeadLetter.read, file)
        except (FileNotFoundError, ValueError) as error:
            raise self.damaged(str(error)) from None

    def damaged(self, reason: str) -> ConfigError:
        """The error for a list of what was chosen that is not what was written."""
        return _damaged(self.chosen_path, reason)

    def write(self, choice: Choice) -> None:
        """Remember a choice, whole or not at all. Raises ConfigError."""
        stored = asdict(choice)
        del stored["resumed"]
        growing = self.path.with_suffix(".part")
        write_all(growing, [json.dumps(stored)])
        with _plain_file(self.path, "written"):
            growing.replace(self.path)

    def forget(self) -> None:
        """All of it was sent, or it is to be chosen anew."""
        with _plain_file(self.path, "deleted"):
            self.path.unlink(missing_ok=True)
            self.chosen_path.unlink(missing_ok=True)


def write_all(path: Path, texts: Iterable[str]) -> None:
    """Write a file, to the disk. Raises ConfigError."""
    with _plain_file(path, "written"), path.open("w", encoding="utf-8") as file:
        file.writelines(texts)
        file.flush()
        os.fsync(file.fileno())


def _damaged(path: Path, reason: str) -> ConfigError:
    return ConfigError(
        f"{show(str(path))} cannot be read: {show(reason)}; choose again with"
        " --fresh (in Python fresh=True)"
    )


def _lock(handle: int, folder: Path) -> None:
    """The lock ends with the process, so a killed one locks nobody out."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(
            f"another redrive that keeps its record in {show(str(folder))} is under way: wait for"
            " it, or give this one a folder of its own"
        ) from None


@contextmanager
def _plain_file(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(f"{show(str(path))} cannot be {what}: {error.strerror}") from error
