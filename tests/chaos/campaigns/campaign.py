"""A campaign: runs of all kinds, several at a time, until each kind has its trials."""

import gc
import json
import math
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests.chaos.campaigns.forking import fork
from tests.chaos.campaigns.plan import FULL, Kind, Plan, draw, named
from tests.chaos.campaigns.report import (
    Wanted,
    covered_of,
    parts_of,
    shortage,
    table,
    total_of,
    write_json,
)
from tests.chaos.campaigns.result import save
from tests.chaos.campaigns.run import Run
from tests.support.faults.power import NoCompiler
from tests.support.servers import binary_of

FULL_SECONDS = 600.0
WANTED = {
    Kind.WORKER: 500, Kind.REDIS: 100, Kind.NETWORK: 50, Kind.FAILOVER: 20, Kind.POWER: 20,
    Kind.EVERYSEC: 6, Kind.RIGHTS: 20, Kind.SLOTS: 20, Kind.EMPTY: 10,
    Kind.EVICTING: 2, Kind.GATEWAY: 50, Kind.MIXED: 10,
}  # fmt: skip
"""Trials of each kind in ten minutes; a shorter campaign wants its share."""
WANTED_MESSAGES = 300_000
SPARE = 1.05
"""Aimed at more than is wanted by this factor: a run may break."""
REPAIRED = 5
"""So many runs that broke are made up for."""
TYPICAL_RUN_S, LONGEST_RUN_S = 30.0, 900.0
STATUS_NO_COMPILER = 2


class _Running(NamedTuple):
    """A run that has not ended."""

    plan: Plan
    folder: Path
    began: float


class Campaign:
    """Runs of all kinds, until each has its trials and the time is over.

    Args:
        seed: All of it follows from this, but what the machine makes of it.
        seconds: How long; what is missing then gets half the time more.
        folder: For the evidence of runs with a finding.
        only: Kinds; none for all.
        size: Of runs at most; 1 is full size.
        lanes: Runs at a time.
        server: A name in SERVERS; default the server of this machine.
    """

    def __init__(
        self,
        seed: int,
        seconds: float,
        folder: Path,
        *,
        only: Sequence[Kind] = (),
        size: float = 1.0,
        lanes: int = 2,
        server: str | None = None,
    ) -> None:
        self.seed, self.seconds, self.folder = seed, seconds, folder
        self._server = server
        self._lanes = lanes
        self._wanted = wanted_in(seconds, only)
        self._sizes = {kind: size_of(kind, self._wanted.trials[kind], size) for kind in self.kinds}
        self._begun: Counter[Kind] = Counter()
        self._trials: Counter[Kind] = Counter()
        self._longest: dict[Kind, float] = {}
        self._running: dict[int, _Running] = {}
        self._runs: list[dict[str, Any]] = []
        self._broken: list[str] = []
        self._cpu_s = 0.0

    @property
    def kinds(self) -> list[Kind]:
        """The kinds of its runs."""
        return list(self._wanted.trials)

    def execute(self, report: Path) -> int:
        """Run it all, print the table, write the JSON; the exit status."""
        say(f"campaign of {self.seconds:g} s, seed {self.seed}, {self._lanes} runs at a time")
        self.folder.mkdir(parents=True, exist_ok=True)
        gc.freeze()  # so that no run has to copy what all of them share
        began = time.monotonic()
        try:
            while True:
                kind = self._next(time.monotonic() - began)
                if kind is not None and len(self._running) < self._lanes:
                    self._begin(kind)
                elif not self._running:
                    break
                else:
                    time.sleep(0.05)
                self._collect()
        finally:
            for pid in self._running:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        return self._report(report, time.monotonic() - began)

    def _next(self, passed: float) -> Kind | None:
        """The kind of the next run: the one that is furthest behind; None for no more runs."""
        wanted = self._wanted.trials
        kind = min(wanted, key=lambda k: self._trials[k] / wanted[k])
        done = self._trials[kind] >= wanted[kind] * SPARE
        if done and sum(map(covered_of, self._runs)) < self._wanted.messages:
            done, kind = False, self._fullest()
        if done:  # more of the same, as long as it can end in time
            takes = self._longest.get(kind, TYPICAL_RUN_S)
            return kind if passed + takes < self.seconds else None
        return kind if passed < self.seconds * 1.5 else None

    def _fullest(self) -> Kind:
        """The kind whose runs have the most messages in a second."""
        rates = {
            kind: sum(covered_of(run) for run in self._runs if run["kind"] == kind)
            / max(1.0, sum(run["seconds"] for run in self._runs if run["kind"] == kind))
            for kind in self.kinds
        }
        return max(rates, key=lambda kind: rates[kind])

    def _begin(self, kind: Kind) -> None:
        plan = draw(kind, self.seed * 1000 + self._begun[kind], self._sizes[kind])
        self._begun[kind] += 1
        self._trials[kind] += plan.trials
        folder = place_of(plan, self.folder)
        folder.mkdir(parents=True)
        pid = fork(partial(one_run, plan, folder, self._server), folder / "driver")
        self._running[pid] = _Running(plan, folder, time.monotonic())

    def _collect(self) -> None:
        for pid, running in list(self._running.items()):
            took = time.monotonic() - running.began
            if took > LONGEST_RUN_S:
                os.kill(pid, signal.SIGKILL)
            ended, status, used = os.wait4(pid, os.WNOHANG)
            if ended:
                del self._running[pid]
                self._cpu_s += used.ru_utime + used.ru_stime
                kind = running.plan.kind
                self._longest[kind] = max(self._longest.get(kind, 0.0), took)
                self._note(running, os.waitstatus_to_exitcode(status))

    def _note(self, running: _Running, status: int) -> None:
        plan, folder = running.plan, running.folder
        result = folder / "result.json"
        if status not in (0, 1) or not result.exists():
            last = (folder / "driver").read_text().strip().splitlines()[-1:]
            why = last[0] if last else "it ended without a word"
            if len(self._broken) < REPAIRED:  # another one takes its place
                self._trials[plan.kind] -= plan.trials
            self._broken.append(f"{plan.name}: {why}")
            say(f"{plan.name}: BROKEN, status {status}: {why}")
            return
        run = json.loads(result.read_text())
        self._runs.append(run)
        accepted = sum(run["verdict"]["accepted"].values())
        ended = f"{run['trials']} trials, {accepted:,} accepted, {run['seconds']} s"
        say(f"{plan.name}: {ended}, {len(run['findings'])} findings")
        if run["findings"]:
            for line in run["findings"][:5]:
                say(f"  {line}")
            server = f" SERVER={self._server}" if self._server else ""
            say(f"  again: make chaos RUN={plan.name}{server}   evidence: {folder}")
        else:
            shutil.rmtree(folder)

    def _report(self, report: Path, passed: float) -> int:
        parts = parts_of(self._runs)
        total = total_of(parts)
        short = shortage(parts, self._wanted)
        write_json(
            report, parts, self._runs, seed=self.seed, seconds=round(passed, 1),
            cpu_seconds=round(self._cpu_s, 1), lanes=self._lanes, broken=self._broken, short=short,
            wanted={str(kind): round(count) for kind, count in self._wanted.trials.items()},
        )  # fmt: skip
        say("")
        sys.stdout.write(table(parts) + "\n")
        used = f"{passed:.0f} s, {self._cpu_s:.0f} s of CPU"
        say(f"\n{used}, seed {self.seed}, JSON in {report}")
        for line in self._broken:
            say(f"a run broke, which proves nothing: {line}")
        for line in short:
            say(f"fewer than wanted: {line}")
        return 1 if total.failed or self._broken else 0


def wanted_in(seconds: float, only: Sequence[Kind] = ()) -> Wanted:
    """What a campaign of so many seconds wants; of some kinds only, any number of messages."""
    share = seconds / FULL_SECONDS
    trials = {kind: WANTED[kind] * min(1.0, share) for kind in only or WANTED}
    return Wanted(trials, 0 if only else round(WANTED_MESSAGES * share))


def size_of(kind: Kind, wanted: float, most: float = 1.0) -> float:
    """The size of the runs of a kind: all the same, and together what is wanted."""
    full = FULL.get(kind)
    if full is None:
        return most
    runs = math.ceil(wanted * SPARE / (full * most))
    each = math.ceil(wanted * SPARE / runs)
    return min(most, math.ceil(1000 * each / full) / 1000)


def place_of(plan: Plan, folder: Path) -> Path:
    """Where the evidence of a run goes; what was there is gone."""
    place = folder / f"{plan.kind}-{plan.seed}"
    shutil.rmtree(place, ignore_errors=True)
    return place


def program(server: str | None) -> Path | None:
    """What a name in SERVERS stands for on this machine."""
    if server is None:
        return None
    found = binary_of(server)
    if found is None:
        raise SystemExit(f"there is no {server} on this machine")
    return found.path


def one_run(plan: Plan, folder: Path, server: str | None) -> int:
    """A run of a campaign, in a process of its own; the exit status."""
    gc.disable()  # the records of a run are millions of objects, and end with the process
    result = Run(plan, folder, binary=program(server), forked=True).execute()
    save(result, folder)
    return 1 if result.findings else 0


def once(name: str, folder: Path, server: str | None) -> int:
    """One run, told in detail; its evidence stays in the folder. The exit status."""
    plan = named(name)
    place = place_of(plan, folder)
    try:
        result = Run(plan, place, binary=program(server)).execute()
    except NoCompiler as error:
        say(f"{name} needs a C compiler: {error}")
        return STATUS_NO_COMPILER
    save(result, place)
    say(f"{result.plan}: {result.strikes}")
    sys.stdout.write(table(parts_of([result.as_json()])) + "\n")
    for line in result.findings[:20]:
        say(line)
    return 1 if result.findings else 0


def say(line: str) -> None:
    """Tell whoever looks on."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
