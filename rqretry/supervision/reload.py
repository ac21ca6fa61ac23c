"""`rqretry worker --reload`: noticing that the code of an app has changed. For development."""

import logging
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from rqretry.core.errors import ConfigError

log = logging.getLogger("rqretry")

_STOP_S = 1.0
_NOT_CODE = {"__pycache__", "node_modules", "site-packages"}


def require_watchfiles() -> None:
    """Raise ConfigError, naming the extra, where changes cannot be watched."""
    if find_spec("watchfiles") is None:
        raise ConfigError(
            "watching code for changes needs watchfiles: run pip install 'rqretry[reload]'"
        )


class CodeWatch:
    """Watches the *.py files below a folder, in a thread; hidden folders are left out.

    A context manager: it watches from the beginning of the block to its end.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder).resolve()
        self._changed = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rqretry-reload", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(timeout=_STOP_S)

    def take(self) -> bool:
        """Whether something has changed since this was asked last."""
        changed = self._changed.is_set()
        self._changed.clear()
        return changed

    def is_code(self, _change: object, path: str) -> bool:
        """Whether a change of this path is a change of the app's code."""
        parts = Path(path).relative_to(self._folder).parts
        return path.endswith(".py") and not any(p.startswith(".") or p in _NOT_CODE for p in parts)

    def _run(self) -> None:
        from watchfiles import watch  # noqa: PLC0415 - of the extra

        for changes in watch(self._folder, watch_filter=self.is_code, stop_event=self._stopped):
            path = Path(min(path for _, path in changes))
            log.info("%s has changed", path.relative_to(self._folder))
            self._changed.set()
