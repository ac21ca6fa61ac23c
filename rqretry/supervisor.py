"""The supervisor of `rqretry worker`: starts N processes, replaces those that die, stops them all.

Children are spawned, not forked, so that nothing of the parent's connections or threads comes
along. A child that loses its parent stops by itself. SIGTERM and SIGINT stop gracefully; a second
signal is immediate.
"""

import asyncio
import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import time
from dataclasses import dataclass
from multiprocessing.context import SpawnProcess
from multiprocessing.process import parent_process
from typing import Any

from rqretry.app import App
from rqretry.catalog import Catalog
from rqretry.errors import ConfigError, RqretryError
from rqretry.identity import worker_name
from rqretry.loading import load_app
from rqretry.store_sync import SyncStore
from rqretry.worker import GRACE_S, Worker, apply_spec

log = logging.getLogger("rqretry")

REPLACE = 75
"""Exit status of a child that asks to be replaced."""
REFUSED = 78
"""Exit status of a child that cannot work as it is set up; replacing it would not help."""
_SHORT_LIFE_S = 2.0
_LONGEST_BACKOFF_S = 10.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class Orders:
    """What every child is told; picklable."""

    target: str
    app_dir: str
    url: str | None
    namespace: str | None
    concurrency: int | None
    grace: float


def supervise(
    target: str,
    *,
    app_dir: str = ".",
    processes: int = 1,
    concurrency: int | None = None,
    grace: float = GRACE_S,
    url: str | None = None,
    namespace: str | None = None,
) -> int:
    """Run workers until a signal stops them.

    Returns:
        The exit status: 0 stopped as asked, 1 failed.

    Raises:
        ConfigError: The app cannot be loaded, has no consumers, or does not fit its groups.
    """
    orders = Orders(target, app_dir, url, namespace, concurrency, grace)
    app = _load(orders)
    _apply_settings(app)
    return Supervisor(orders, processes).run()


def _load(orders: Orders) -> App:
    app = load_app(orders.target, orders.app_dir)
    app.configure(orders.url, orders.namespace)
    if not app.consumers:
        raise ConfigError(
            f"{orders.target} has no consumers: register one with @app.consumer in a module that"
            f" {orders.target.partition(':')[0]} imports"
        )
    return app


def _apply_settings(app: App) -> None:
    """What consumers name becomes their groups' truth: once, here, and never by a child."""
    settings = app.settings
    with SyncStore(settings.url, repeat_seconds=2.0) as store:
        catalog = Catalog(settings.namespace, settings.levels, worker_name())
        try:
            for spec in app.consumers:
                store.perform(apply_spec(catalog, spec, explicit=True))
        except ConfigError:
            raise
        except RqretryError as error:
            log.warning("%s; the workers keep trying", error)


class Supervisor:
    """Keeps N children running."""

    def __init__(self, orders: Orders, processes: int) -> None:
        self._orders = orders
        self._count = processes
        self._context = multiprocessing.get_context("spawn")
        self._children: dict[SpawnProcess, float] = {}
        self._signals = 0
        self._failures = 0
        self._start_at = 0.0
        self._refused = False

    def run(self) -> int:
        """Start the children and watch them until all have ended."""
        before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        try:
            while self._wanted() or self._children:
                self._fill()
                self._wait()
            return 1 if self._refused else 0
        finally:
            for child in self._children:
                child.kill()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _wanted(self) -> int:
        return 0 if self._signals or self._refused else self._count

    def _fill(self) -> None:
        if time.monotonic() < self._start_at:
            return
        while len(self._children) < self._wanted():
            child = self._context.Process(target=run_child, args=(self._orders,))
            child.start()
            self._children[child] = time.monotonic()
            if self._signals and child.pid is not None:  # a signal came while it was started
                os.kill(child.pid, signal.SIGTERM)

    def _wait(self) -> None:
        sentinels = [child.sentinel for child in self._children]
        if sentinels:
            multiprocessing.connection.wait(sentinels, timeout=0.5)
        else:
            time.sleep(0.05)
        for child, started in list(self._children.items()):
            if child.exitcode is not None:
                del self._children[child]
                self._ended(child, time.monotonic() - started)

    def _ended(self, child: SpawnProcess, lived: float) -> None:
        if self._signals:
            return
        if child.exitcode == REFUSED:
            self._refused = True
            self._tell(signal.SIGTERM)
            return
        log.warning("worker process %s ended (%s); starting another", child.pid, child.exitcode)
        self._failures = self._failures + 1 if lived < _SHORT_LIFE_S else 0
        backoff = min(_LONGEST_BACKOFF_S, 0.1 * 2**self._failures) if self._failures else 0.0
        self._start_at = time.monotonic() + backoff

    def _on_signal(self, _number: int, _frame: object) -> None:
        self._signals += 1
        self._tell(signal.SIGTERM)

    def _tell(self, number: signal.Signals) -> None:
        for child in self._children:
            if child.pid is not None and child.exitcode is None:
                os.kill(child.pid, number)


def run_child(orders: Orders) -> None:
    """The main function of a worker process; does not return."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to us too; the parent acts
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    status = 1
    try:
        app = _load(orders)
        status = _run_loop(app, orders)
    except RqretryError as error:
        log.error("%s", error)  # noqa: TRY400 - one sentence, no traceback
        status = REFUSED if isinstance(error, ConfigError) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # threads that are stuck in handlers must not keep the process


def _run_loop(app: App, orders: Orders) -> int:
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_work(app, orders))


async def _work(app: App, orders: Orders) -> int:
    worker = app.worker(concurrency=orders.concurrency, grace=orders.grace, explicit=False)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, worker.stop)
    parent = parent_process()
    if parent is not None:
        loop.add_reader(parent.sentinel, _orphaned, worker, parent.sentinel)
    async with app.living():
        await worker.run()
    return REPLACE if worker.needs_replacement else 0


def _orphaned(worker: Worker, sentinel: int) -> None:
    asyncio.get_running_loop().remove_reader(sentinel)
    worker.stop()


def _loop_factory() -> Any:
    try:
        import uvloop  # noqa: PLC0415 - the extra [fast]
    except ImportError:
        return None
    return uvloop.new_event_loop
