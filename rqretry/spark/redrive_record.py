"""The selection of a redrive, on disk until all of it is sent, so that a killed run can resume.

The record has what was chosen. Whether one of these was sent is read from Redis: a message that was
sent back is no longer dead since that moment, which no crash can change.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from rqretry.client import Client
from rqretry.core.errors import ConfigError, show
from rqretry.core.parts import parts_of
from rqretry.spark.redrive_choice import Choice, ChosenDeadLetter

FOLDER = "redrive-state"


class Record:
    """The file that remembers a choice until all of it was sent.

    Args:
        folder: Where such files are.
        client: A choice belongs to its server and namespace,
        group: to its group,
        where: and to its condition.
    """

    def __init__(self, folder: str, client: Client, group: str, where: str) -> None:
        settings = parts_of(client).settings
        parts = json.dumps([settings.url.safe, settings.namespace, group, where])
        name = hashlib.blake2b(parts.encode(), digest_size=8).hexdigest()
        self.folder = Path(folder)
        self.path = self.folder / f"redrive-{name}.json"

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other runs with this folder out. Raises ConfigError if one is under way."""
        with _plain_file(self.folder, "used"):
            self.folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.folder, os.O_RDONLY)
        try:
            _lock(handle, self.folder)
            yield
        finally:
            os.close(handle)

    def read(self) -> Choice | None:
        """What an earlier run chose and did not finish. Raises ConfigError."""
        try:
            with _plain_file(self.path, "read"):
                stored = json.loads(self.path.read_text(encoding="utf-8"))
            choice = Choice(**stored, resumed=True)
            choice.dead_letters = [
                ChosenDeadLetter(*dead_letter) for dead_letter in choice.dead_letters
            ]
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise ConfigError(
                f"{show(str(self.path))} cannot be read: {show(str(error))}; choose again with"
                " --fresh (in Python fresh=True)"
            ) from None
        return choice

    def write(self, choice: Choice) -> None:
        """Remember a choice, whole or not at all. Raises ConfigError."""
        stored = asdict(choice)
        del stored["resumed"]
        growing = self.path.with_suffix(".part")
        with _plain_file(self.path, "written"):
            with growing.open("w", encoding="utf-8") as file:
                json.dump(stored, file)
                file.flush()
                os.fsync(file.fileno())
            growing.replace(self.path)

    def forget(self) -> None:
        """All of it was sent, or it is to be chosen anew."""
        with _plain_file(self.path, "deleted"):
            self.path.unlink(missing_ok=True)


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
