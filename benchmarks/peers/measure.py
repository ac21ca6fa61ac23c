"""Measuring one system: publishing, draining, retrying, latency, what a kill -9 loses."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import percentile
from benchmarks.peers.catalog import PEERS
from benchmarks.peers.environments import ADAPTERS, ROOT, program
from benchmarks.scenarios.callers import AT_ONCE
from benchmarks.servers import MICROSECONDS, Server

STARTS_S = 3.0
HELD, HELD_S = 20, 1.0
LOSS_WAIT_S = 150.0
NUDGES = 20
NUDGED_WAIT_S = 30.0
RETRY_LIMIT_S = 10.0
_LATENCY = 300
_OF_CALLERS = 6_000
_TWICE = 2
_LOG, _MODULES = "log", "node_modules"


@dataclass(frozen=True, slots=True)
class Bench:
    """One system on one server."""

    name: str
    server: Server
    place: Path

    def publish(self, action: str, count: int, *more: str) -> dict[str, Any]:
        """Publish in one of its ways: one, bulk, slow or callers; nudge is traffic and no more.

        Raises AssertionError if its program fails.
        """
        command = (*self._adapter(), action, str(count), *more)
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=ADAPTERS, env=self._env(),
            timeout=300,
        )  # fmt: skip
        if done.returncode:
            raise AssertionError(f"{action} ended with {done.returncode}: {_reason(done.stderr)}")
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    @contextmanager
    def worker(self, expected: int, **more: str) -> Iterator[Path]:
        """One worker process, configured by its environment; the file that it writes at its end."""
        out = self.place / f"{time.monotonic_ns()}.json"
        own = PEERS[self.name].worker
        command = (*(program(self.name) or ()), *own) if own else (*self._adapter(), "work")
        env = self._env(BENCH_EXPECTED=str(expected), BENCH_OUT=str(out), **more)
        with (self.place / _LOG).open("a", encoding="utf-8") as log:
            process = subprocess.Popen(
                command,
                cwd=ADAPTERS, env=env, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        try:
            yield out
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _adapter(self) -> tuple[str, ...]:
        """The program of this system; for Node a copy that finds its modules beside it."""
        run, runtime = program(self.name) or (), PEERS[self.name].runtime
        if runtime == "python":
            return (*run, str(ADAPTERS / "start.py"), f"{self.name}_peer")
        if runtime == "ruby":
            return (*run, str(ADAPTERS / f"{self.name}_peer.rb"))
        script = self.place / f"{self.name}_peer.mjs"
        if not script.exists():
            shutil.copy(ADAPTERS / script.name, script)
            (self.place / _MODULES).symlink_to(ROOT / self.name / _MODULES)
        return (*run, str(script))

    def _env(self, **more: str) -> dict[str, str]:
        env = {"PATH": os.defpath, "HOME": str(self.place), "BENCH_PORT": str(self.server.port)}
        return {**env, "PYTHONPATH": str(ADAPTERS), "dramatiq_queue_prefetch": "1000", **more}


def measure(name: str, messages: int | None, *, kill: bool) -> dict[str, Any]:
    """All figures of one system; what a kill -9 loses only if asked: it can take three minutes."""
    count = messages or PEERS[name].messages
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        drained = _drain(name, Path(place), count)
        failing = retry(name, Path(place), messages or PEERS[name].failing)
        latency = _latency(name, Path(place), min(_LATENCY, count))
        lost = loss(name, Path(place)) if kill else {}
    return {**drained, **failing, **latency, **lost}


def callers(name: str, messages: int | None) -> dict[str, Any]:
    """So many callers at once, each of which publishes again when its last message is stored."""
    count, found = messages or _OF_CALLERS, dict[str, Any]()
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        for number in AT_ONCE:
            with Server() as server:
                cpu = server.cpu_s()
                made = Bench(name, server, Path(place)).publish("callers", count, str(number))
                cpu = server.cpu_s() - cpu
            waits = made["sent"]
            found[f"{number}_per_s"] = len(waits) / made["took"]
            found[f"{number}_p99_ms"] = percentile(waits, 99) * 1000
            found[f"{number}_redis_us"] = cpu / len(waits) * MICROSECONDS
    return found


def _drain(name: str, place: Path, count: int) -> dict[str, Any]:
    with Server() as server:
        bench = Bench(name, server, place)
        single = bench.publish("one", min(count, 3000))
        server.client.flushall()
        cpu = server.cpu_s()
        before = server.memory()
        bulk = bench.publish("bulk", count)
        waiting = server.memory()
        with bench.worker(count) as out:
            report = _report(out, 30 + count / 50)
        cpu = server.cpu_s() - cpu
    starts = sorted(report["starts"])
    return {
        "publish_per_s": min(count, 3000) / single["took"],
        "publish_bulk_per_s": count / bulk["took"],
        "rate": (len(starts) - 1) / (starts[-1] - starts[0]),
        "worker_us": report["worker_us"],
        "redis_us": cpu / count * MICROSECONDS,
        "bytes_per_message": (waiting - before) / count,
        "checked": sorted(report["numbers"]) == list(range(count)),
    }


def _latency(name: str, place: Path, count: int) -> dict[str, Any]:
    with Server() as server:
        bench = Bench(name, server, place)
        with bench.worker(count) as out:
            time.sleep(STARTS_S)
            sent = bench.publish("slow", count)["sent"]
            report = _report(out, 60)
    started = dict(zip(report["numbers"], report["starts"], strict=True))
    waits = [(started[number] - at) * 1000 for number, at in enumerate(sent)]
    return {"p50_ms": percentile(waits, 50), "p99_ms": percentile(waits, 99)}


def retry(name: str, place: Path, count: int) -> dict[str, Any]:
    """W3: every message fails once and then succeeds, at the shortest delay that there is.

    What is not done when time is over is not waited for: the rate is of what was done.
    """
    with Server() as server:
        bench = Bench(name, server, place)
        bench.publish("bulk", count)
        more = {"BENCH_FAILS": "1", "BENCH_LIMIT_S": str(RETRY_LIMIT_S)}
        with bench.worker(count, **more) as out:
            report = _report(out, 30 + RETRY_LIMIT_S)
    return retried(report, count)


def retried(report: Mapping[str, Any], count: int) -> dict[str, Any]:
    """The figures of W3: messages per second, of two deliveries each."""
    starts, done, counts = report["starts"], report["done"], Counter(report["numbers"])
    wanted = Counter(dict.fromkeys(range(count), _TWICE))
    took = max(starts) - min(starts)
    return {
        "w3_per_s": done / took if took else 0.0,
        "w3_done": done,
        "w3_messages": count,
        "w3_checked": counts == wanted if done == count else counts <= wanted,
    }


def loss(name: str, place: Path) -> dict[str, Any]:
    """Kill a worker that holds messages; does another one get them all, without any traffic?"""
    with Server() as server:
        bench = Bench(name, server, place)
        with bench.worker(HELD, BENCH_HANGS="1") as out:
            time.sleep(STARTS_S)  # saq may lose what waits when a worker starts, kill or no kill
            bench.publish("bulk", HELD)
            _wait_for(out, 30)
            time.sleep(HELD_S)
        killed_at = time.monotonic()
        with bench.worker(HELD) as out:
            with suppress(TimeoutError):
                back = max(_report(out, LOSS_WAIT_S)["starts"]) - killed_at
                return {"survives_kill": True, "needs_traffic": False, "recovery_s": back}
            bench.publish("nudge", NUDGES)
            with suppress(TimeoutError):
                _report(out, NUDGED_WAIT_S)
                return {"survives_kill": True, "needs_traffic": True, "recovery_s": None}
    return {"survives_kill": False, "needs_traffic": False, "recovery_s": None}


def _report(out: Path, seconds: float) -> dict[str, Any]:
    _wait_for(out, seconds)
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


def _reason(text: str) -> str:
    """The line of a traceback that says what happened: Python's last one, another's first one."""
    lines = [line for line in text.strip().splitlines() if line.strip()] or ["it says nothing"]
    return lines[-1 if lines[0].startswith("Traceback") else 0].strip()


def _wait_for(out: Path, seconds: float) -> None:
    until = time.monotonic() + seconds
    while not out.exists():
        if time.monotonic() > until:
            lines = (out.parent / _LOG).read_text(encoding="utf-8", errors="replace").splitlines()
            last = f"; its last line: {lines[-1]}" if lines else ""
            raise TimeoutError(f"the worker did not finish within {seconds:.0f} s{last}")
        time.sleep(0.02)
