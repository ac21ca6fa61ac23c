"""What a worker process of `rqretry worker` does, from its start to its exit status."""

import asyncio
import json
import logging
import os
import signal
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import parent_process
from typing import Any

from rqretry.app import App
from rqretry.core.errors import ConfigError, RqretryError
from rqretry.observability import observer
from rqretry.observability.counters import Figures, Tally
from rqretry.observability.log_format import set_up_logging
from rqretry.observability.trace_settings import start_tracing
from rqretry.supervision.worker_config import Orders, load
from rqretry.worker.gc_tuning import calm_collector
from rqretry.worker.recycle_process import retire_above_memory
from rqretry.worker.registration import Condition
from rqretry.worker.worker import Worker

log = logging.getLogger("rqretry")

REPLACE = 75
"""Exit status of a child that asks to be replaced."""
REFUSED = 78
"""Exit status of a child that cannot work as it is set up; replacing it would not help."""
AT_ONCE = signal.SIGUSR1
"""What children are told at the second signal. SIGTERM may reach them twice for one signal: from
us, and from whoever signals a whole process group, as systemd does."""
REPORT_EVERY_S = 1.0


def run_child(orders: Orders, reports: Connection) -> None:
    """The main function of a worker process; does not return."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to us too; the parent acts
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    set_up_logging(orders.logs)
    status = 1
    try:
        start_tracing(orders.tracing)
        if orders.tallied:
            observer.install(Tally(observer.installed))
        app = load(orders)
        calm_collector()
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            status = runner.run(_work(app, orders, reports))
    except RqretryError as error:
        log.error("%s", error)  # noqa: TRY400 - one sentence, no traceback
        status = REFUSED if isinstance(error, ConfigError) else 1
    except Exception:
        log.exception("worker process failed")
    finally:
        observer.stop()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # threads that are stuck in handlers must not keep the process


def read_report(data: bytes) -> tuple[Condition, Figures | None]:
    """A report as the supervisor receives it: how the process is, and what it has counted."""
    condition, figures = json.loads(data)
    return Condition(*condition), None if figures is None else Figures.read(figures)


async def _work(app: App, orders: Orders, reports: Connection) -> int:
    worker = app.worker(
        concurrency=orders.concurrency, grace=orders.grace, explicit=orders.explicit
    )
    worker.max_messages = orders.max_messages
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, _stop, worker)
    loop.add_signal_handler(AT_ONCE, _stop_at_once, worker)
    parent = parent_process()
    if parent is not None:
        loop.add_reader(parent.sentinel, _orphaned, worker, parent.sentinel)
    beside = [loop.create_task(_report(worker, reports), name="reports")]
    if orders.max_memory is not None:
        watch = retire_above_memory(orders.max_memory, worker.retire)
        beside.append(loop.create_task(watch, name="memory"))
    try:
        async with app.living():
            await worker.run()
    finally:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        if observer.installed is not None:
            observer.installed.flush()
        with suppress(OSError):  # the last attempts and spans are counted too
            _send(worker, reports)
    return REPLACE if worker.needs_replacement else 0


async def _report(worker: Worker, reports: Connection) -> None:
    """Tell the supervisor how this process is: every second, and at every change.

    It comes from the event loop, so a handler that blocks the loop silences it.
    """
    os.set_blocking(reports.fileno(), False)  # a supervisor that was stopped must not stop us
    while True:
        worker.changed.clear()
        try:
            _send(worker, reports)
        except BlockingIOError:
            pass  # it will read later ones
        except OSError:
            return  # it is gone
        with suppress(TimeoutError):
            async with asyncio.timeout(REPORT_EVERY_S):
                await worker.changed.wait()


def _send(worker: Worker, reports: Connection) -> None:
    seen = observer.installed
    figures = seen.snapshot() if isinstance(seen, Tally) else None
    reports.send_bytes(json.dumps([worker.condition(), figures]).encode())


def _orphaned(worker: Worker, sentinel: int) -> None:
    asyncio.get_running_loop().remove_reader(sentinel)
    _stop(worker)


def _stop(worker: Worker) -> None:
    if not worker.stopping:
        worker.stop()


def _stop_at_once(worker: Worker) -> None:
    _stop(worker)
    worker.stop()


def _loop_factory() -> Any:
    try:
        import uvloop  # noqa: PLC0415 - the extra [fast]
    except ImportError:
        return None
    return uvloop.new_event_loop
