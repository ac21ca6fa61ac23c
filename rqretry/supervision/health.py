"""What the supervisor knows about its processes, and whether that is live and ready.

Live: the supervisor's loop runs, so a process that ended is being replaced. Ready: the server takes
writes, and every process reported a moment ago that it can lease from it.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rqretry.observability.counters import Figures
from rqretry.worker.registration import PROOF_S, ROSTER_EVERY_S, Condition

SCHEMA = 1
SILENT_S = 4.0
"""A process that has not reported for so long has an event loop that is blocked."""
UNPROVED_S = 2 * ROSTER_EVERY_S + PROOF_S
_HICCUP_S = 0.5
"""A connection that breaks and is remade does not make a process unready."""
_ROUND_S = 10.0

Answer = tuple[bool, dict[str, Any]]


@dataclass(slots=True)
class _Process:
    reported_at: float
    condition: Condition
    fault_since: float | None = None
    figures: Figures | None = None
    slots: Mapping[str, Sequence[int]] = field(default_factory=dict)


class Board:
    """The state of the processes: written by the supervisor, read by the ports. Thread-safe."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._processes: dict[int, _Process] = {}
        self._lock = threading.Lock()
        self._round_at: float | None = None
        self._stopping = False
        self._server = Condition("starting", "Redis has not been asked yet", 0.0)
        self._ended = Figures()
        """The counts of processes that have ended."""

    def checked(self, *, stopping: bool) -> None:
        """The supervisor has checked its processes."""
        with self._lock:
            self._round_at = time.monotonic()
            self._stopping = stopping

    def started(self, pid: int) -> None:
        """A process was started."""
        with self._lock:
            self._processes[pid] = _Process(time.monotonic(), Condition("starting", None, 0.0))

    def reported(
        self,
        pid: int,
        condition: Condition,
        figures: Figures | None = None,
        slots: Mapping[str, Sequence[int]] = {},
    ) -> None:
        """A process has reported its condition, its counts so far, and its busy slots and all."""
        with self._lock:
            known, now = self._processes.get(pid), time.monotonic()
            if known is not None:
                since = known.fault_since if known.fault_since is not None else now
                known.reported_at, known.condition = now, condition
                known.fault_since = None if condition.fault is None else since
                known.figures, known.slots = figures, slots

    def ended(self, pid: int) -> None:
        """A process has ended."""
        with self._lock:
            known = self._processes.pop(pid, None)
            if known is not None and known.figures is not None:
                self._ended.add(known.figures)

    def asked_server(self, fault: str | None, proved_at: float) -> None:
        """The supervisor itself has, or has not, written to the server."""
        with self._lock:
            self._server = Condition("working", fault, proved_at)

    def silent(self, seconds: float) -> list[int]:
        """The processes that work, and have not reported for so long."""
        with self._lock:
            now = time.monotonic()
            return [
                pid
                for pid, process in self._processes.items()
                if process.condition.state == "working" and now - process.reported_at > seconds
            ]

    def working(self) -> int:
        """How many processes work, and not only start or stop."""
        with self._lock:
            return sum(p.condition.state == "working" for p in self._processes.values())

    def figures(self) -> Figures:
        """The counts of all processes, also those that have ended."""
        total = Figures()
        with self._lock:
            total.add(self._ended)
            for process in self._processes.values():
                if process.figures is not None:
                    total.add(process.figures)
        return total

    def states(self) -> dict[str, int]:
        """How many processes are starting, working, blocked and stopping."""
        states, now = (
            dict.fromkeys(("starting", "working", "blocked", "stopping"), 0),
            time.monotonic(),
        )
        with self._lock:
            for process in self._processes.values():
                states["blocked" if _is_blocked(process, now) else process.condition.state] += 1
        return states

    def slots(self) -> dict[str, tuple[int, int]]:
        """Of each group the busy slots and all, in all processes."""
        total: dict[str, tuple[int, int]] = {}
        with self._lock:
            for process in self._processes.values():
                for group, (busy, all_) in process.slots.items():
                    known = total.get(group, (0, 0))
                    total[group] = known[0] + busy, known[1] + all_
        return total

    # -- answers -----------------------------------------------------------------------------

    def live(self) -> Answer:
        """Whether the supervisor runs and every process runs, or is being replaced."""
        with self._lock:
            now = time.monotonic()
            late = now - (self._round_at or now)  # the app may take long to import
            reason = "" if late < _ROUND_S else f"the supervisor has not responded for {late:.0f} s"
            return self._answer("live", reason, sorted(self._processes))

    def ready(self) -> Answer:
        """Whether every process can lease now; else why not."""
        with self._lock:
            now = time.monotonic()
            rows = [self._row(pid, process, now) for pid, process in self._processes.items()]
            return self._answer("ready", self._reason(rows, now), rows)

    def _answer(self, name: str, reason: str, processes: list[Any]) -> Answer:
        body = {"schema": SCHEMA, name: not reason, "reason": reason, "wanted": self._wanted}
        return not reason, body | {"processes": processes}

    def _reason(self, rows: list[dict[str, Any]], now: float) -> str:
        if self._stopping:
            return "stopping"
        if self._server.fault is not None:
            return self._server.fault
        silent = now - self._server.proved_at
        if silent > SILENT_S:
            return f"Redis has not answered for {silent:.1f} s"
        bad = [row for row in rows if not row["ready"]]
        if bad:
            return f"process {bad[0]['pid']}: {bad[0]['reason']}"
        missing = self._wanted - len(rows)
        return f"{missing} of {self._wanted} processes are not there yet" if missing > 0 else ""

    def _row(self, pid: int, process: _Process, now: float) -> dict[str, Any]:
        condition = process.condition
        reason = _why_not(process, now)
        proved = round(now - condition.proved_at, 3) if condition.proved_at else None
        return {
            "pid": pid,
            "ready": not reason,
            "reason": reason,
            "state": condition.state,
            "proved_s_ago": proved,
        }


def _is_blocked(process: _Process, now: float) -> bool:
    return process.condition.state == "working" and now - process.reported_at > SILENT_S


def _why_not(process: _Process, now: float) -> str:
    condition, silent = process.condition, now - process.reported_at
    if _is_blocked(process, now):
        return f"has not reported for {silent:.1f} s: its event loop is blocked"
    since = process.fault_since
    if condition.fault is not None and since is not None and now - since >= _HICCUP_S:
        return condition.fault
    if condition.state != "working":
        return condition.state
    unproved = now - condition.proved_at
    return f"has not reached Redis for {unproved:.1f} s" if unproved > UNPROVED_S else ""
