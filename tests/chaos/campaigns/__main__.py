"""`make chaos SECONDS=600 SEED=1` runs a campaign, `make chaos RUN=redis-kill:17` one run again.

Exit status: 0 nothing found, 1 a finding, 2 wrong usage. The runs of a campaign are processes of
their own, two at a time: most of a run is waiting.
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.chaos.campaigns.nursery import ROOT
from tests.chaos.campaigns.plan import Kind, draw, named
from tests.chaos.campaigns.report import covered_of, parts_of, table, total_of, write_json
from tests.chaos.campaigns.run import Run, save
from tests.support.faults.power import NoCompiler

FULL_SECONDS = 600.0
WANTED = {
    Kind.WORKER: 500, Kind.REDIS: 100, Kind.NETWORK: 50, Kind.FAILOVER: 20, Kind.POWER: 20,
    Kind.EVERYSEC: 6, Kind.MIXED: 10,
}  # fmt: skip
"""Trials of each kind in ten minutes; a shorter campaign wants its share."""
WANTED_MESSAGES = 300_000
LONGEST_RUN_S = 900.0
FOLDER = ROOT / "build" / "chaos"


def main(words: Sequence[str]) -> int:
    """Do what the command line says."""
    options = _options(words)
    if options.run:
        return _once(options.run, options.folder)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1, 10_000)
    campaign = Campaign(seed, options)
    return campaign.execute(options.json)


class Campaign:
    """Runs of all kinds, until each has its trials and the time is over."""

    def __init__(self, seed: int, options: argparse.Namespace) -> None:
        self.seed = seed
        self.seconds: float = options.seconds
        self.folder: Path = options.folder
        self._size: float = options.size
        self._lanes: int = options.lanes
        self._share = min(1.0, self.seconds / FULL_SECONDS)
        self._wanted = {kind: WANTED[kind] * self._share for kind in options.only or WANTED}
        self._begun: Counter[Kind] = Counter()
        self._trials: Counter[Kind] = Counter()
        self._running: dict[subprocess.Popen[bytes], tuple[str, Path, float]] = {}
        self._runs: list[dict[str, Any]] = []
        self._broken: list[str] = []

    def execute(self, report: Path) -> int:
        """Run it all, print the table, write the JSON; the exit status."""
        _say(f"campaign of {self.seconds:g} s, seed {self.seed}, {self._lanes} runs at a time")
        began = time.monotonic()
        try:
            while self._goes_on(time.monotonic() - began) or self._running:
                if self._goes_on(time.monotonic() - began) and len(self._running) < self._lanes:
                    self._begin()
                else:
                    time.sleep(0.05)
                self._collect()
        finally:
            for process in self._running:
                process.kill()
                process.wait()
        return self._tell(report, time.monotonic() - began)

    def _goes_on(self, passed: float) -> bool:
        """Whether another run is to begin; what is missing at the end gets half the time more."""
        done = all(self._trials[kind] >= wanted for kind, wanted in self._wanted.items())
        if len(self._wanted) == len(WANTED):  # all kinds: the messages count, too
            accepted = sum(map(covered_of, self._runs))
            done = done and accepted >= WANTED_MESSAGES * self._share
        return passed < self.seconds * (1.0 if done else 1.5)

    def _begin(self) -> None:
        kind = min(self._wanted, key=lambda k: self._trials[k] / self._wanted[k])
        number = self._begun[kind]
        self._begun[kind] += 1
        plan = draw(kind, self.seed * 1000 + number, self._size)
        name = plan.name
        self._trials[kind] += plan.trials
        folder = self.folder / f"{kind}-{plan.seed}"
        words = ("--run", name, "--folder", str(self.folder))
        process = subprocess.Popen(
            (sys.executable, "-m", "tests.chaos.campaigns", *words),
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=ROOT,
        )  # fmt: skip
        self._running[process] = (name, folder, time.monotonic())

    def _collect(self) -> None:
        for process, (name, folder, began) in list(self._running.items()):
            if process.poll() is None:
                if time.monotonic() - began > LONGEST_RUN_S:
                    process.kill()
                continue
            del self._running[process]
            errors = process.stderr.read().decode() if process.stderr else ""
            self._note(name, folder, process.returncode, errors)

    def _note(self, name: str, folder: Path, status: int, errors: str) -> None:
        result = folder / "result.json"
        if status not in (0, 1) or not result.exists():
            last = errors.strip().splitlines()[-1:] or ["it ended without a word"]
            self._broken.append(f"{name}: {last[0]}")
            _say(f"{name}: BROKEN, status {status}: {last[0]}")
            return
        run = json.loads(result.read_text())
        self._runs.append(run)
        accepted = sum(run["verdict"]["accepted"].values())
        ended = f"{run['trials']} trials, {accepted:,} accepted, {run['seconds']} s"
        _say(f"{name}: {ended}, {len(run['findings'])} findings")
        if run["findings"]:
            for line in run["findings"][:5]:
                _say(f"  {line}")
            _say(f"  again: make chaos RUN={name}   evidence: {folder}")
        else:
            shutil.rmtree(folder)

    def _tell(self, report: Path, passed: float) -> int:
        parts = parts_of(self._runs)
        write_json(
            report, parts, self._runs, seed=self.seed, seconds=round(passed, 1),
            wanted={str(kind): round(count) for kind, count in self._wanted.items()},
            broken=self._broken,
        )  # fmt: skip
        total = total_of(parts)
        _say("")
        sys.stdout.write(table(parts) + "\n")
        _say(f"\n{passed:.0f} s, seed {self.seed}, JSON in {report}")
        for line in self._broken:
            _say(f"a run broke, which proves nothing: {line}")
        missing = [
            f"{kind} {sum(p.trials for p in parts if p.name == kind)} of {wanted:.0f}"
            for kind, wanted in self._wanted.items()
            if sum(p.trials for p in parts if p.name == kind) < round(wanted)
        ]
        for line in missing:
            _say(f"fewer trials than wanted: {line}")
        return 1 if total.failed or self._broken else 0


def _once(name: str, folder: Path) -> int:
    """One run; its evidence stays in the folder."""
    plan = named(name)
    place = folder / f"{plan.kind}-{plan.seed}"
    shutil.rmtree(place, ignore_errors=True)
    try:
        result = Run(plan, place).execute()
    except NoCompiler as error:
        _say(f"{name} needs a C compiler: {error}")
        return 2
    save(result, place)
    _say(f"{result.plan}: {result.strikes}")
    sys.stdout.write(table(parts_of([result.as_json()])) + "\n")
    for line in result.findings[:20]:
        _say(line)
    return 1 if result.findings else 0


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=FULL_SECONDS)
    parser.add_argument("--seed", type=int, help="of the campaign; default any, and it is printed")
    parser.add_argument("--lanes", type=int, default=2, help="runs at a time")
    parser.add_argument("--only", type=Kind, nargs="*", default=(), choices=list(Kind))
    parser.add_argument("--run", help="KIND:SEED[@SIZE], one run of a campaign")
    parser.add_argument(
        "--size", type=float, default=1.0, help="of that run; 1 is what campaigns do"
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for the evidence")
    parser.add_argument("--json", type=Path, default=FOLDER / "report.json")
    return parser.parse_args(words)


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
