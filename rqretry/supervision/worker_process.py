"""What a worker process of `rqretry worker` does, from its start to its exit status."""

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import parent_process
from typing import Any, Protocol

from rqretry.consumer.registry import ConsumerSpec
from rqretry.core.errors import ConfigError, InvalidArgument, RqretryError
from rqretry.core.parts import HasParts, parts_of
from rqretry.core.settings import Settings, variable
from rqretry.observability import observer
from rqretry.observability.counters import Figures, Tally
from rqretry.observability.log_format import LogSettings, set_up_logging
from rqretry.observability.trace_settings import TraceSettings, start_tracing
from rqretry.supervision.stack_dump import StackDump
from rqretry.worker.gc_tuning import collect_less_often
from rqretry.worker.lease_journal import LeaseJournal
from rqretry.worker.recycle_process import retire_above_memory
from rqretry.worker.registration import Condition
from rqretry.worker.worker import GRACE_S, Worker

log = logging.getLogger("rqretry")

REPLACE = 75
"""Exit status of a process that asks to be replaced."""
REFUSED = 78
"""Exit status of a process that cannot work as configured; replacing it would not help."""
AT_ONCE = signal.SIGUSR1
"""Sent to the processes at the second signal. SIGTERM may reach them twice for one signal: from
us, and from whoever signals a whole process group, as systemd does."""
REPORT_EVERY_S = 1.0


class WorkerParts(Protocol):
    """What a worker process needs of an App."""

    @property
    def settings(self) -> Settings:
        """Server, namespace and level table."""

    @property
    def consumers(self) -> Sequence[ConsumerSpec]:
        """Its consumers."""

    @property
    def topics(self) -> Mapping[str, int | None]:
        """The partitions of topics that it declares."""

    def worker(self, *, concurrency: int | None, grace: float, explicit: bool) -> Worker:
        """A worker that runs them."""

    @property
    def living(self) -> Callable[[], AbstractAsyncContextManager[None]]:
        """Its lifespan."""


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """How the worker processes of one command work; picklable.

    Attributes:
        load_app: Imports the app, such as a partial of `app_loader.load_worker_app`.
        concurrency: Attempts at once per consumer; None for each consumer's own.
        grace: Seconds that running handlers get when the process stops.
        max_messages: Replace a process when it has finished so many; None for never.
        max_memory: Replace a process when it uses more bytes than this; None for never.
        explicit: Apply the settings that consumers name to their groups.
        logs: How it logs.
        tracing: Whether and how it traces; None for not at all.
        counted: It counts and times its attempts, for the metrics port.
        service: What it is called in the list of workers, where the environment names no service.
        restarts: How many processes were started in place of one that had ended by itself.
    """

    load_app: Callable[[], HasParts[WorkerParts]]
    concurrency: int | None = None
    grace: float = GRACE_S
    max_messages: int | None = None
    max_memory: int | None = None
    explicit: bool = False
    logs: LogSettings = field(default_factory=LogSettings)
    tracing: TraceSettings | None = None
    counted: bool = False
    service: str = ""
    restarts: int = 0


def run_worker_process(
    config: WorkerConfig, reports: Connection, journal: LeaseJournal, stacks: StackDump
) -> None:
    """The main function of a worker process; does not return."""
    stacks.listen()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to us too; the parent acts
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    set_up_logging(config.logs)
    status = 1
    try:
        start_tracing(config.tracing)
        if config.counted:
            observer.install(Tally(observer.installed))
        app = parts_of(config.load_app())
        collect_less_often()
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            status = runner.run(_work(app, config, reports, journal))
    except RqretryError as error:
        log.error("%s", error)  # noqa: TRY400 - one sentence, no traceback
        status = REFUSED if isinstance(error, ConfigError | InvalidArgument) else 1
    except Exception:
        log.exception("worker process failed")
    finally:
        observer.stop()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # threads that are stuck in handlers must not keep the process


def read_report(data: bytes) -> tuple[Condition, Figures | None, dict[str, list[int]]]:
    """A report as the supervisor receives it.

    Returns:
        The process's condition, what it counted, and for each group its busy slots and all.
    """
    condition, figures, slots = json.loads(data)
    return Condition(*condition), None if figures is None else Figures.read(figures), slots


async def _work(
    app: WorkerParts, config: WorkerConfig, reports: Connection, journal: LeaseJournal
) -> int:
    worker = app.worker(
        concurrency=config.concurrency, grace=config.grace, explicit=config.explicit
    )
    if config.max_messages is not None:
        worker.limit_messages(config.max_messages)
    worker.note_leases_in(journal)
    named = variable("OTEL_SERVICE_NAME") or config.service
    worker.describe({"service": named, "restarts": config.restarts})
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, _stop, worker)
    loop.add_signal_handler(AT_ONCE, _stop_at_once, worker)
    parent = parent_process()
    if parent is not None:
        loop.add_reader(parent.sentinel, _orphaned, worker, parent.sentinel)
    beside = [loop.create_task(_report(worker, reports), name="reports")]
    if config.max_memory is not None:
        watch = retire_above_memory(config.max_memory, worker.retire)
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
    """Report this process's condition to the supervisor: every second, and at every change.

    Reports come from the event loop, so a handler that blocks the loop silences them.
    """
    os.set_blocking(reports.fileno(), False)  # a supervisor that was stopped must not stop us
    while True:
        worker.changed.clear()
        try:
            _send(worker, reports)
        except BlockingIOError:
            pass  # it will read later ones
        except OSError:
            return  # the supervisor is gone
        with suppress(TimeoutError):
            async with asyncio.timeout(REPORT_EVERY_S):
                await worker.changed.wait()


def _send(worker: Worker, reports: Connection) -> None:
    seen = observer.installed
    figures = seen.snapshot() if isinstance(seen, Tally) else None
    report = worker.condition(), figures, worker.slots()
    reports.send_bytes(json.dumps(report).encode())


def _orphaned(worker: Worker, sentinel: int) -> None:
    asyncio.get_running_loop().remove_reader(sentinel)
    _stop(worker)


def _stop(worker: Worker) -> None:
    if not worker.stopping:
        worker.stop()


def _stop_at_once(worker: Worker) -> None:
    _stop(worker)
    worker.stop()


def loop_factory() -> Any:
    """uvloop, where it is installed; None for asyncio's own."""
    try:
        import uvloop  # noqa: PLC0415 - the extra [fast]
    except ImportError:
        return None
    return uvloop.new_event_loop
