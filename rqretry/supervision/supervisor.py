"""The supervisor of `rqretry worker`: starts N processes, replaces those that end, stops them all.

Children are spawned, not forked, so that nothing of the parent's connections or threads comes
along. A child that loses its parent stops by itself. SIGTERM and SIGINT stop gracefully; a second
signal is immediate. SIGHUP replaces the processes one after another.
"""

import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import NamedTuple

from rqretry.catalog.catalog import Catalog
from rqretry.consumer.process_pool import how_ended
from rqretry.consumer.registry import ConsumerSpec
from rqretry.core.errors import ConfigError, InvalidArgument, RqretryError, StoreUnavailable
from rqretry.core.parts import parts_of
from rqretry.core.settings import Settings
from rqretry.core.worker_name import worker_name
from rqretry.supervision.exit_records import ExitRecords, running_in
from rqretry.supervision.health import SILENT_S, Board
from rqretry.supervision.health_port import HealthPort, ServerCheck
from rqretry.supervision.metrics_port import MetricsPort
from rqretry.supervision.reload import CodeWatch
from rqretry.supervision.stack_dump import StackDump, innermost
from rqretry.supervision.worker_process import (
    AT_ONCE,
    REFUSED,
    REPLACE,
    WorkerConfig,
    read_report,
    run_worker_process,
)
from rqretry.transport.store_sync import SyncStore
from rqretry.worker.lease_journal import LeaseJournal
from rqretry.worker.recycle_process import resident_bytes
from rqretry.worker.registration import apply_spec, check_specs
from rqretry.worker.stop_signals import SIGNALS, Stoppable, StoppedEarly

log = logging.getLogger("rqretry")

HEALTH_HOST = "127.0.0.1"
MARGIN_S = 4.0
"""Seconds after the grace for a process to settle, deregister and end; then it is killed."""
_SHORT_LIFE_S = 2.0
_LONGEST_BACKOFF_S = 10.0
_LONGEST_START_S = 10.0
_POLL_EVERY_S = 0.5
_REAP_S = 1.0


class Ports(NamedTuple):
    """Where a supervisor answers: an address of this machine, and TCP ports; None for no port.

    Attributes:
        host: The address of both.
        health: Answers /livez and /readyz.
        metrics: Answers /metrics.
    """

    host: str = HEALTH_HOST
    health: int | None = None
    metrics: int | None = None


def supervise(
    config: WorkerConfig,
    processes: int = 1,
    ports: Ports = Ports(),  # noqa: B008 - immutable
    *,
    watched: str | None = None,
) -> int:
    """Run workers until a signal stops them.

    Args:
        config: How each of them works.
        processes: How many worker processes.
        ports: The health port and the metrics port.
        watched: Replace the processes when a Python file below this folder changes.

    Returns:
        The exit status: 0 stopped as asked, 1 failed, or a process had to be killed.

    Raises:
        ConfigError: The app cannot be loaded, has no consumers, or does not fit its groups; or a
            port cannot be opened.
    """
    board = Board(processes)
    config = replace(config, counted=ports.metrics is not None, explicit=watched is not None)
    try:
        with ExitStack() as around, Stoppable() as early:
            _open_ports(around, ports, board)
            if config.max_memory is not None:
                resident_bytes()
            app = parts_of(config.load_app())
            apply_settings(app.settings, app.consumers, app.topics)
            if ports.health is not None or ports.metrics is not None:
                around.enter_context(ServerCheck(board, app.settings))
            watch = around.enter_context(CodeWatch(watched)) if watched is not None else None
            early.check()
            longest_s = max((s.consume_timeout_ms for s in app.consumers), default=0) / 1000
            records = ExitRecords(app.settings)
            return Supervisor(config, processes, board, watch, records, longest_s).run()
    except StoppedEarly:
        return 0


def _open_ports(around: ExitStack, ports: Ports, board: Board) -> None:
    if ports.health is not None:
        around.enter_context(HealthPort(board, ports.host, ports.health))
    if ports.metrics is not None:
        around.enter_context(MetricsPort(board, ports.host, ports.metrics))


def apply_settings(
    settings: Settings,
    consumers: Sequence[ConsumerSpec],
    declared: Mapping[str, int | None],
) -> None:
    """What consumers name becomes their groups' settings: once, here, never in a worker process.

    Raises:
        ConfigError, InvalidArgument: It does not go with what is there.
    """
    with SyncStore(settings.url, repeat_seconds=2.0) as store:
        catalog = Catalog(settings.namespace, settings.levels, worker_name())
        catalog.topics.declared = declared
        try:
            store.perform(check_specs(catalog, consumers, explicit=True))
        except StoreUnavailable as error:
            log.warning("%s; the workers keep trying", error)
            return
        for spec in consumers:
            try:
                store.perform(apply_spec(catalog, spec, explicit=True))
            except (ConfigError, InvalidArgument):
                raise
            except RqretryError as error:
                log.warning("group %s: %s; the workers keep trying", spec.group, error)
                if isinstance(error, StoreUnavailable):
                    return


@dataclass(slots=True, eq=False)
class _Child:
    process: SpawnProcess
    pid: int
    reports: Connection | None
    journal: LeaseJournal
    stacks: StackDump
    started: float
    kill_at: float | None = None
    """It was asked to stop, and is killed at this time."""
    recorded: bool = False
    """How it ended is."""
    blocked: bool = False
    """Its event loop stands still, and the log says so."""


class Supervisor:
    """Keeps N children running."""

    def __init__(
        self,
        config: WorkerConfig,
        processes: int,
        board: Board,
        watch: CodeWatch | None,
        exit_records: ExitRecords,
        longest_s: float,
    ) -> None:
        self._config = config
        self._count = processes
        self._board = board
        self._watch = watch
        self._exit_records = exit_records
        self._silent_s = longest_s + SILENT_S
        """So long an attempt may block the event loop of a process; then it is replaced."""
        self._context = multiprocessing.get_context("spawn")
        self._children: list[_Child] = []
        self._signals = 0
        self._failures = self._restarts = 0
        self._start_at = 0.0
        self._refused = False
        self._failed = False
        self._on_hold = False
        """The code that was loaded last cannot work: wait for it to change."""
        self._ready = False
        """All processes have worked since they were started."""
        self._restart_wanted = False
        self._to_restart: list[_Child] = []
        # A terminal that is closed ends what runs in it; anywhere else it is a wish to restart.
        self._hangup_stops = sys.stdin is not None and sys.stdin.isatty()

    def run(self) -> int:
        """Start the children and watch them until all have ended."""
        before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        before[signal.SIGHUP] = signal.getsignal(signal.SIGHUP) or signal.SIG_DFL
        if before[signal.SIGHUP] is not signal.SIG_IGN:  # nohup
            signal.signal(signal.SIGHUP, self._on_hangup)
        try:
            while self._wanted() or self._children or self._on_hold:
                self._board.checked(stopping=bool(self._signals))
                self._fill()
                self._restart()
                self._wait()
                self._log_ready()
            return 1 if self._refused or self._failed else 0
        finally:
            for child in self._children:
                child.process.kill()
            for number, handler in before.items():
                signal.signal(number, signal.SIG_IGN if self._signals else handler)

    def _log_ready(self) -> None:
        """Once, and again where all had to start anew."""
        working = self._board.working()
        if working == self._count and not self._ready and not self._signals:
            log.info("ready: %d %s", working, "process" if working == 1 else "processes")
        self._ready = working == self._count or (self._ready and working > 0)

    # -- starting and ending -----------------------------------------------------------------

    def _wanted(self) -> int:
        return 0 if self._signals or self._refused or self._on_hold else self._count

    def _fill(self) -> None:
        if time.monotonic() < self._start_at:
            return
        while len(self._children) < self._wanted():
            ours, theirs = self._context.Pipe(duplex=False)
            journal, stacks = LeaseJournal(), StackDump()
            config = replace(self._config, restarts=self._restarts)
            process = self._context.Process(
                target=run_worker_process, args=(config, theirs, journal, stacks)
            )
            process.start()
            theirs.close()
            assert process.pid is not None
            child = _Child(process, process.pid, ours, journal, stacks, time.monotonic())
            self._children.append(child)
            self._board.started(child.pid)
            if self._signals:  # one came while it was started
                self._stop(child, signal.SIGTERM)

    def _wait(self) -> None:
        sentinels = [child.process.sentinel for child in self._children]
        reports = {child.reports: child for child in self._children if child.reports}
        if sentinels:
            for ready in multiprocessing.connection.wait([*sentinels, *reports], _POLL_EVERY_S):
                if isinstance(ready, Connection):
                    self._read_report(reports[ready])
        else:
            time.sleep(0.05)
        self._look_for_blocked()
        now, silent = time.monotonic(), self._board.silent(self._silent_s)
        for child in list(self._children):
            if child.pid in silent and child.kill_at is None:
                log.error("worker process %d has not reported for %g s: its event loop is blocked;"
                          " it is replaced", child.pid, self._silent_s)  # fmt: skip
                self._stop(child, signal.SIGTERM)
            if child.process.exitcode is not None:
                self._forget(child)
                self._ended(child, now - child.started)
                child.journal.close()
                child.stacks.close()
            elif child.kill_at is not None and now >= child.kill_at:
                child.process.kill()
                child.process.join(_REAP_S)
                ran = self._record(child, "was killed: it did not stop within its grace")
                log.error(
                    "worker process %d did not stop within its grace; killed%s", child.pid, ran
                )
                child.kill_at, self._failed = None, self._failed or self._signals > 0

    def _look_for_blocked(self) -> None:
        """Log once whose event loop stands still, and what holds it up."""
        silent = self._board.silent(SILENT_S)
        for child in self._children:
            if child.blocked and child.pid not in silent:
                log.info("worker process %d reports again", child.pid)
            elif not child.blocked and child.pid in silent:
                stacks = child.stacks.ask(child.pid)
                log.warning(
                    "worker process %d has not reported for %g s: its event loop is blocked%s: %s",
                    child.pid, SILENT_S, running_in(child.journal.read().running),
                    innermost(stacks) or "its stack is not known",
                    extra={"stacks": stacks},
                )  # fmt: skip
            child.blocked = child.pid in silent

    def _read_report(self, child: _Child) -> None:
        assert child.reports is not None
        try:
            self._board.reported(child.pid, *read_report(child.reports.recv_bytes()))
        except (EOFError, OSError):  # it is about to end
            child.reports.close()
            child.reports = None

    def _forget(self, child: _Child) -> None:
        while child.reports is not None and child.reports.poll():  # its last reports
            self._read_report(child)
        self._children.remove(child)
        self._board.ended(child.pid)
        if child.reports is not None:
            child.reports.close()

    def _ended(self, child: _Child, lived: float) -> None:
        status = child.process.exitcode
        if self._signals or self._refused:
            return
        if status == REFUSED:
            self._refuse()
        elif status == REPLACE or child.kill_at is not None:
            log.info("worker process %d was replaced", child.pid)
        else:
            how = how_ended(status)
            ran = "" if child.recorded else self._record(child, f"ended with {how}")
            log.warning("worker process %d ended (%s)%s; starting another", child.pid, how, ran)
            self._restarts += 1
            self._back_off(failed=lived < _SHORT_LIFE_S)

    def _record(self, child: _Child, ending: str) -> str:
        """Keep how a process ended; what it ran then, for the log."""
        child.recorded, held = True, child.journal.read()
        self._exit_records.write(child.pid, ending, held)
        return running_in(held.running)

    def _refuse(self) -> None:
        """A child cannot work as configured."""
        if self._watch is not None:
            self._on_hold = True
            log.info("waiting for the code to change")
        elif self._board.working():  # a restart brought code that cannot work; the old one can
            self._to_restart.clear()
            self._back_off(failed=True)
        else:
            self._refused = True
            self._stop_all(signal.SIGTERM)

    def _back_off(self, *, failed: bool) -> None:
        self._failures = self._failures + 1 if failed else 0
        backoff = min(_LONGEST_BACKOFF_S, 0.1 * 2**self._failures) if self._failures else 0.0
        self._start_at = time.monotonic() + backoff

    # -- restarting --------------------------------------------------------------------------

    def _restart(self) -> None:
        """Replace the children: one after another, or all at once where the code changed."""
        if self._watch is not None and self._watch.take() and not self._signals:
            self._on_hold, self._failures, self._start_at = False, 0, 0.0
            self._stop_all(signal.SIGTERM)
        if self._restart_wanted:
            self._restart_wanted = False
            log.info("replacing the worker processes, one after another")
            self._to_restart = list(self._children)
        self._to_restart = [child for child in self._to_restart if child in self._children]
        if self._to_restart and not self._signals and self._settled():
            self._stop(self._to_restart.pop(0), signal.SIGTERM)

    def _settled(self) -> bool:
        """Whether as many children as are wanted work, or had time enough to."""
        if len(self._children) < self._count or any(c.kill_at for c in self._children):
            return False
        youngest = max(child.started for child in self._children)
        late = time.monotonic() - youngest > _LONGEST_START_S
        return late or self._board.working() >= self._count

    # -- signals -----------------------------------------------------------------------------

    def _on_signal(self, _number: int, _frame: object) -> None:
        self._signals += 1
        self._on_hold = False
        self._stop_all(signal.SIGTERM if self._signals == 1 else AT_ONCE)

    def _on_hangup(self, number: int, frame: object) -> None:
        if self._hangup_stops:
            self._on_signal(number, frame)
        else:
            self._restart_wanted = True

    def _stop_all(self, number: signal.Signals) -> None:
        for child in self._children:
            self._stop(child, number)

    def _stop(self, child: _Child, number: signal.Signals) -> None:
        if child.process.exitcode is None:
            patience = 0.0 if number == AT_ONCE else self._config.grace
            kill_at = time.monotonic() + patience + MARGIN_S
            child.kill_at = kill_at if child.kill_at is None else min(child.kill_at, kill_at)
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(child.pid, number)
