"""Handlers with `process=True`: CPU-bound work, each slot in a process of its own.

A process, unlike a thread, can be killed: an attempt that times out or loses its lease ends at
once, and a handler that takes its process down fails its own attempt and nobody else's.
"""

import importlib
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any

from rqretry.errors import ConfigError, show

_context = multiprocessing.get_context("spawn")


class ProcessDied(Exception):
    """Raised when the process of an attempt ended before the handler did."""


class RemoteError(Exception):
    """What a handler raised in its process, where the exception itself cannot travel."""


class ProcessSlot:
    """One process that runs one attempt at a time; started when it is first needed."""

    def __init__(self) -> None:
        self._process: SpawnProcess | None = None
        self._pipe: Connection | None = None
        self._lock = threading.Lock()

    def call(
        self, handler: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a handler in the process; blocks, so it is called in a thread.

        Raises:
            ProcessDied: The process was killed, or took itself down.
            Exception: What the handler raised.
        """
        with self._lock:
            if self._process is None or not self._process.is_alive():
                self._start()
            process, pipe = self._process, self._pipe
        assert process is not None
        assert pipe is not None
        try:
            pipe.send((*address(handler), args, kwargs))
            value, error, trace = pipe.recv()
        except (EOFError, OSError) as broken:
            process.join(5)
            raise ProcessDied(f"the handler's process ended with {process.exitcode}") from broken
        if error is not None:
            raise error from RemoteError(trace)
        return value

    def kill(self) -> None:
        """End the process, whatever it is doing; the next attempt gets a new one."""
        with self._lock:
            if self._process is not None:
                self._process.kill()
            self._process = self._pipe = None

    def _start(self) -> None:
        ours, theirs = _context.Pipe()
        self._process = _context.Process(target=serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self._pipe = ours


def address(handler: Callable[..., Any]) -> tuple[str, str]:
    """Module and name under which another process finds a function. Raises ConfigError."""
    module = getattr(handler, "__module__", "")
    name = getattr(handler, "__qualname__", "")
    if not module or not name or "<" in name:
        raise ConfigError(
            f"handler {show(handler)} cannot run with process=True: it must be a function at the"
            " top of a module"
        )
    return module, name


def serve(pipe: Connection) -> None:
    """The main function of the process: run what is sent until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            module, name, args, kwargs = pipe.recv()
        except (EOFError, OSError):
            os._exit(0)
        pipe.send(_answer(module, name, args, kwargs))


def _answer(
    module: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, Any, str]:
    try:
        handler: Any = importlib.import_module(module)
        for part in name.split("."):
            handler = getattr(handler, part)
        handler = getattr(handler, "function", handler)  # a task is called by its function
        return handler(*args, **kwargs), None, ""
    except BaseException as error:  # noqa: BLE001 - it is raised again in the worker
        return None, _portable(error), traceback.format_exc()


def _portable(error: BaseException) -> BaseException:
    try:
        ForkingPickler.dumps(error)
    except Exception:  # noqa: BLE001 - anything can go wrong with somebody's exception
        return RemoteError(f"{type(error).__qualname__}: {error}")
    return error
