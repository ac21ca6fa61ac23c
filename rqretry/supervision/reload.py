"""`rqretry worker --reload`: noticing that the code of an app has changed. For development."""

import logging
import os
import threading
from pathlib import Path
from typing import Self

log = logging.getLogger("rqretry")

LOOK_EVERY_S = 0.5
_NOT_CODE = {"__pycache__", "node_modules", "site-packages"}

Stamps = dict[str, tuple[int, int]]


class CodeWatch:
    """Looks at the *.py files below a folder, in a thread; hidden folders are left out.

    A context manager: it looks from the beginning of the block to its end.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder).resolve()
        self._changed = threading.Event()
        self._stopped = threading.Event()
        self._seen = stamps(self._folder)
        self._thread = threading.Thread(target=self._run, name="rqretry-reload", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(timeout=LOOK_EVERY_S)

    def take(self) -> bool:
        """Whether something has changed since this was asked last."""
        changed = self._changed.is_set()
        self._changed.clear()
        return changed

    def _run(self) -> None:
        while not self._stopped.wait(LOOK_EVERY_S):
            now = stamps(self._folder)
            if now != self._seen:
                names = sorted(name for name, _ in now.items() ^ self._seen.items())
                log.info("%s has changed", os.path.relpath(names[0], self._folder))
                self._seen = now
                self._changed.set()


def stamps(folder: Path) -> Stamps:
    """Time and size of each Python file below a folder."""
    found: Stamps = {}
    for place, folders, files in os.walk(folder):
        folders[:] = [f for f in folders if not f.startswith(".") and f not in _NOT_CODE]
        for name in files:
            if name.endswith(".py"):
                path = os.path.join(place, name)  # noqa: PTH118 - a Path each is slow in a big tree
                try:
                    stat = os.stat(path)  # noqa: PTH116
                except OSError:  # it went away meanwhile
                    continue
                found[path] = (stat.st_mtime_ns, stat.st_size)
    return found
