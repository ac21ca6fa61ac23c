"""The worker processes of the demo: a supervisor like that of `rqretry worker`, as a child."""

import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from multiprocessing.context import SpawnProcess
from multiprocessing.process import parent_process
from pathlib import Path
from typing import Self

import rqretry
from rqretry.app import App
from rqretry.core.errors import ConfigError, RqretryError
from rqretry.supervision.supervisor import supervise
from rqretry.supervision.worker_process import WorkerConfig

TARGET = "rqretry.demo.claims:app"
_GRACE_S = 5.0
_STOP_S = 10.0
_LOG_LINES = 5

Load = Callable[[str, str, str, str], App]


class DemoWorkers:
    """A context manager: the workers run inside it, and are gone after it.

    Args:
        load: Imports the app, as `app_loader.load_worker_app` does.
        processes: How many.
        url: The server; it goes to the child through a pipe, since other users of the machine can
            read arguments and it may hold a password.
        namespace: The namespace.
    """

    def __init__(self, load: Load, processes: int, url: str, namespace: str) -> None:
        handle, name = tempfile.mkstemp(prefix="rqretry-demo-", suffix=".log")
        os.close(handle)
        self._log = Path(name)
        self._process: SpawnProcess = multiprocessing.get_context("spawn").Process(
            target=_work, args=(load, processes, url, namespace, name), name="rqretry demo workers"
        )

    def check(self) -> None:
        """Raises RqretryError, with the end of their log, if the workers have ended."""
        if self._process.exitcode is not None:
            tail = self._log.read_text(errors="replace").strip().splitlines()[-_LOG_LINES:]
            log = " | ".join(tail) or "they wrote no log"
            raise RqretryError(f"the worker processes of the demo ended: {log}")

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._process.terminate()
            self._process.join(_STOP_S)
        finally:
            if self._process.is_alive():  # its own children end when they see that it is gone
                self._process.kill()
                self._process.join()
            self._process.close()
            self._log.unlink(missing_ok=True)


def _work(load: Load, processes: int, url: str, namespace: str, log: str) -> None:
    """The main function of the child."""
    with Path(log).open("ab", buffering=0) as file:  # the terminal belongs to the live view
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.INFO)
    threading.Thread(target=_leave_with_parent, args=(Path(log),), daemon=True).start()
    folder = str(Path(rqretry.__file__).parent.parent)
    load_app = partial(load, TARGET, folder, url, namespace)
    try:
        status = supervise(WorkerConfig(load_app, grace=_GRACE_S), processes)
    except ConfigError as error:
        sys.exit(str(error))  # one sentence in the log, which `check` reads
    sys.exit(status)


def _leave_with_parent(log: Path) -> None:
    """A demo that was killed must leave nothing behind."""
    parent = parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        log.unlink(missing_ok=True)
        os.kill(os.getpid(), signal.SIGTERM)
