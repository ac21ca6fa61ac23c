"""A pool of threads that keep no process alive: a handler that hangs must not."""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class DaemonThreads(Executor):
    """Runs calls in up to so many threads; the interpreter waits for none of them at its end."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads = 0

    def submit(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run it in a thread that is idle, a new one, or the next that is; from one thread only."""
        future: Future[T] = Future()
        self._calls.put((future, lambda: call(*args, **kwargs)))
        if not self._idle.acquire(blocking=False) and self._threads < self._most:
            self._threads += 1
            name = f"{self._name}_{self._threads}"
            threading.Thread(target=self._run, name=name, daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002 - as it is declared
        """Let idle threads end; those that run a call end with it."""
        for _ in range(self._threads):
            self._calls.put(None)

    def _run(self) -> None:
        while (item := self._calls.get()) is not None:
            future, call = item
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:  # noqa: BLE001 - it becomes the outcome of the call
                    future.set_exception(error)
            del item, future, call
            self._idle.release()
