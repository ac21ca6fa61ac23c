"""Worker processes of a scenario: started fresh, watched, and asked for a report."""

import asyncio
import ctypes
import logging
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.handlers import Tally, register
from benchmarks.workload import TOPIC, loop_factory
from rqretry import App
from rqretry.core.parts import parts_of
from rqretry.worker.gc_tuning import collect_less_often
from rqretry.worker.worker import Worker

_spawn = multiprocessing.get_context("spawn")
PATIENCE_S = 900.0
ABSENT, LOADED = "absent", "loaded"


@dataclass(frozen=True, slots=True)
class Job:
    """What one worker process does.

    Attributes:
        url: The server.
        handler: A name in `handlers.HANDLERS`.
        topics: What it consumes.
        groups: One consumer for each.
        options: Of the consumers.
        look_every_s: How often it counts what it has handled; that costs CPU of its own.
        otel: What of OpenTelemetry: ABSENT, LOADED (and off), or the URL of a collector to which
            every attempt is exported; "" for what a worker without tracing has.
    """

    url: str
    handler: str
    topics: tuple[str, ...] = (TOPIC,)
    groups: tuple[str, ...] = ("bench",)
    options: dict[str, Any] = field(default_factory=dict)
    look_every_s: float = 0.01
    otel: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What one worker process did.

    Attributes:
        tally: What its handlers recorded.
        worker_us: CPU per message, between the first look that saw messages and the last.
        rss_mb: The most memory it took.
        spans: Of attempts, ended.
        dropped: Those that found the queue full.
    """

    tally: Tally
    worker_us: float
    rss_mb: float
    spans: int = 0
    dropped: int = 0


class Workers:
    """Some worker processes, all doing the same job."""

    def __init__(self, job: Job, processes: int = 1) -> None:
        self._members = [_Member(job) for _ in range(processes)]
        self.reports: list[Report] = []

    def __enter__(self) -> Self:
        for member in self._members:
            member.ready.wait(60)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.finish()
        for member in self._members:
            member.end()

    @property
    def pids(self) -> list[int]:
        """The processes."""
        return [member.process.pid or 0 for member in self._members]

    @property
    def handled(self) -> int:
        """How many messages were handled so far, all processes together."""
        return sum(int(member.count.value) for member in self._members)

    def wait_for(self, count: int, seconds: float = PATIENCE_S) -> None:
        """Wait until so many messages were handled.

        Raises:
            AssertionError: They were not in this time.
        """
        wait_until(lambda: self._handled(count), seconds, f"{count} messages handled")

    def _handled(self, count: int) -> bool:
        for member in self._members:
            assert member.process.is_alive(), "a worker process ended before its work was done"
        return self.handled >= count

    def cpu_s(self) -> float:
        """CPU seconds that the processes have used."""
        return sum(process_cpu_s(pid) for pid in self.pids)

    def kill(self) -> None:
        """SIGKILL, as the kernel does it."""
        for member in self._members:
            os.kill(member.process.pid or 0, signal.SIGKILL)
            member.process.join()

    def pause(self) -> None:
        """Stop them where they are, until `go_on`; they use no CPU meanwhile."""
        for pid in self.pids:
            os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        """After a `halt`."""
        for pid in self.pids:
            os.kill(pid, signal.SIGCONT)

    def finish(self) -> list[Report]:
        """Stop the workers and read their reports."""
        if not self.reports:
            for member in self._members:
                member.stop.set()
            self.reports = [member.reports.recv() for member in self._members]
        return self.reports


class _Member:
    def __init__(self, job: Job) -> None:
        self.count: Synchronized[int] = _spawn.Value(ctypes.c_ulonglong, 0, lock=False)  # type: ignore[assignment]
        self.ready, self.stop = _spawn.Event(), _spawn.Event()
        self.reports, child_end = _spawn.Pipe(duplex=False)
        args = (job, self.count, self.ready, self.stop, child_end)
        self.process: SpawnProcess = _spawn.Process(target=_main, args=args, daemon=False)
        self.process.start()
        child_end.close()

    def end(self) -> None:
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.reports.close()


def wait_until(done: Callable[[], bool], seconds: float, what: str) -> None:
    """Look until something is so.

    Raises:
        AssertionError: It was not in this time.
    """
    until = time.monotonic() + seconds
    while not done():
        if time.monotonic() > until:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(0.01)


def rate_of(reports: Sequence[Report]) -> float:
    """Steady state: handler starts per second from the first to the last."""
    starts = [start for report in reports for start in report.tally.starts]
    took = max(starts) - min(starts)
    return (len(starts) - 1) / took if took else 0.0


def process_cpu_s(pid: int) -> float:
    """CPU seconds of any process of ours."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:  # noqa: PTH123
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def family_cpu_s() -> float:
    """CPU seconds of this process, and of those that it and its children have started and live."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    family, found = {os.getpid()}, 0
    while len(family) > found:
        found = len(family)
        family |= {pid for pid, parent in parents.items() if parent in family}
    total = 0.0
    for pid in family:
        with suppress(OSError):
            total += process_cpu_s(pid)
    return total


def _main(job: Job, count: Any, ready: Any, stop: Any, reports: Connection) -> None:
    if job.otel == ABSENT:
        sys.modules["opentelemetry"] = None  # type: ignore[assignment] # cannot be imported
    elif job.otel:
        import_module("rqretry.otel.setup")
    collect_less_often()
    # What a worker logs is formatted and written, as it would be; but nobody wants to read it.
    logging.basicConfig(stream=open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        report = runner.run(_work(job, count, ready, stop))
    reports.send(report)
    reports.close()


async def _work(job: Job, count: Any, ready: Any, stop: Any) -> Report:
    app, tally = App(job.url), Tally()
    traced = _tracing(job.otel)
    for group in job.groups:
        register(app, job.handler, tally, list(job.topics), group, **job.options)
    worker: Worker = parts_of(app).worker()
    task = asyncio.get_running_loop().create_task(worker.run())
    await worker.started.wait()
    ready.set()
    looks: list[tuple[int, float]] = []
    while not (stop.is_set() or task.done()):
        now = len(tally.ids)
        if now != count.value:
            looks.append((now, time.process_time()))
            count.value = now
        await asyncio.sleep(job.look_every_s)
    worker.stop()
    await task
    counts = None if traced is None else import_module("benchmarks.spans").finish(traced)
    spans, dropped = (counts.ended, counts.dropped) if counts else (0, 0)
    return Report(tally, _per_message_us(looks), _most_memory_mb(), spans, dropped)


def _tracing(otel: str) -> Any:
    if otel in ("", ABSENT, LOADED):
        return None
    return import_module("benchmarks.spans").trace(otel)


def _most_memory_mb() -> float:
    """Of this process alone; getrusage would count what its parent took before."""
    with open("/proc/self/status", encoding="ascii") as file:  # noqa: PTH123
        (line,) = (line for line in file if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def _per_message_us(looks: Sequence[tuple[int, float]]) -> float:
    if not looks or looks[-1][0] == looks[0][0]:
        return 0.0
    (first, begun), (last, ended) = looks[0], looks[-1]
    return (ended - begun) / (last - first) * 1e6
