"""Measuring one system: publishing, draining, latency, and what a kill -9 loses."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import percentile
from benchmarks.peers.catalog import PEERS
from benchmarks.peers.environments import ADAPTERS, ROOT, program
from benchmarks.servers import MICROSECONDS, Server

STARTS_S = 3.0
HELD = 20
LOSS_WAIT_S = 120.0
_LATENCY = 300


@dataclass(frozen=True, slots=True)
class Bench:
    """One system on one server."""

    name: str
    server: Server
    place: Path

    def publish(self, action: str, count: int) -> dict[str, Any]:
        """Publish in one of its ways: one, bulk or slow."""
        command = (*self._adapter(), action, str(count))
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, cwd=ADAPTERS, env=self._env(),
            timeout=300,
        )  # fmt: skip
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    @contextmanager
    def worker(self, expected: int, *, hangs: bool = False) -> Iterator[Path]:
        """One worker process; the file that it writes at its end."""
        out = self.place / f"{time.monotonic_ns()}.json"
        own = PEERS[self.name].worker
        command = (*(program(self.name) or ()), *own) if own else (*self._adapter(), "work")
        env = self._env(BENCH_EXPECTED=str(expected), BENCH_OUT=str(out))
        if hangs:
            env["BENCH_HANGS"] = "1"
        with (self.place / "log").open("a", encoding="utf-8") as log:
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
        """The program of this system; for Node a copy beside its modules, where it looks."""
        run = program(self.name) or ()
        if not PEERS[self.name].node:
            return (*run, str(ADAPTERS / "start.py"), f"{self.name}_peer")
        script = f"{self.name}_peer.mjs"
        return (*run, str(shutil.copy(str(ADAPTERS / script), str(ROOT / self.name / script))))

    def _env(self, **more: str) -> dict[str, str]:
        env = {"PATH": os.defpath, "HOME": str(self.place), "BENCH_PORT": str(self.server.port)}
        return {**env, "PYTHONPATH": str(ADAPTERS), "dramatiq_queue_prefetch": "1000", **more}


def measure(name: str, messages: int | None, *, kill: bool) -> dict[str, Any]:
    """All figures of one system; what a kill -9 loses only if asked, it takes up to two minutes."""
    count = messages or PEERS[name].messages
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        drained = _drain(name, Path(place), count)
        latency = _latency(name, Path(place), min(_LATENCY, count))
        lost = _loss(name, Path(place)) if kill else {}
    return {**drained, **latency, **lost}


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


def _loss(name: str, place: Path) -> dict[str, Any]:
    """Kill a worker that holds messages; does another one get them all?"""
    with Server() as server:
        bench = Bench(name, server, place)
        bench.publish("bulk", HELD)
        with bench.worker(HELD, hangs=True) as out:
            _wait_for(out, 30)
            time.sleep(1.0)
        killed_at = time.monotonic()
        with bench.worker(HELD) as out:
            try:
                report = _report(out, LOSS_WAIT_S)
            except TimeoutError:
                return {"survives_kill": False, "recovery_s": None}
    return {"survives_kill": True, "recovery_s": max(report["starts"]) - killed_at}


def _report(out: Path, seconds: float) -> dict[str, Any]:
    _wait_for(out, seconds)
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


def _wait_for(out: Path, seconds: float) -> None:
    until = time.monotonic() + seconds
    while not out.exists():
        if time.monotonic() > until:
            raise TimeoutError(f"the worker did not finish within {seconds:.0f} s")
        time.sleep(0.02)
