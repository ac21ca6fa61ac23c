"""Deterministic simulation (docs/simulation.md): a few fixed seeds; `make simulation` runs more."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.model.simulation.mutants import MUTANTS, Mutant, applied
from tests.model.simulation.plans import plan_of
from tests.model.simulation.server import Server, virtual_scripts
from tests.model.simulation.shrinking import FOLDER, kind_of, minimal, replay, run, shrink, write
from tests.model.simulation.world import Outcome

FIRST, PART = 1, 10
KEPT = sorted(FOLDER.glob("*.json"))


@pytest.fixture(scope="module")
def simulated() -> Iterator[Server]:
    with Server(virtual_scripts()) as server:
        yield server


def quick(seeds: range) -> list[int]:
    """Those that need no append-only file, which takes the time of many others."""
    return [seed for seed in seeds if plan_of(seed).restart != "crash"]


@pytest.mark.parametrize("first", range(FIRST, FIRST + 30, PART))
def test_every_promise_is_kept_whatever_goes_wrong(simulated: Server, first: int) -> None:
    failed = [
        f"python -m tests.model.simulation --seed {outcome.seed} --shrink\n  {outcome.failure}"
        for outcome in (run(simulated, seed) for seed in quick(range(first, first + PART)))
        if outcome.failure
    ]
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("seed", [3, 7])
def test_a_seed_gives_the_same_events_each_time(simulated: Server, seed: int) -> None:
    first, second = (run(simulated, seed, traced=True) for _ in range(2))
    assert first.events == second.events
    assert (first.digest, first.taken) == (second.digest, second.taken)


def test_seeds_give_the_same_events_in_every_process() -> None:
    """Whatever the order of its sets is, and whatever chance the code takes for itself."""
    command = [sys.executable, "-m", "tests.model.simulation", "--jobs", "1", "--seeds", "15"]
    runs = [
        subprocess.run(
            [*command, "--seed", "2330"],
            env={**os.environ, "PYTHONHASHSEED": order},
            capture_output=True,
            text=True,
            check=True,
        )
        for order in ("1", "2")
    ]
    first, second = (re.findall(r"digest \w+", run.stdout) for run in runs)
    assert first == second != []


def test_different_seeds_give_different_events(simulated: Server) -> None:
    assert run(simulated, 3).digest != run(simulated, 4).digest


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_what_once_broke_a_promise_does_so_no_more(simulated: Server, path: Path) -> None:
    assert replay(simulated, path).failure == ""


def test_a_server_that_is_killed_comes_back_with_everything() -> None:
    seed = next(seed for seed in range(1, 1000) if plan_of(seed).restart == "crash")
    with Server(virtual_scripts(), appendonly=True) as server:
        assert run(server, seed).failure == ""


def found(server: Server, mutant: Mutant, folder: Path, most: int) -> Outcome | None:
    """The first run that breaks a promise because of a bug."""
    with applied(mutant, folder) as library:
        server.use(library)
        try:
            where = mutant.where or bool
            seeds = [seed for seed in quick(range(1, 2000)) if where(plan_of(seed))][:most]
            outcomes = (run(server, seed) for seed in seeds)
            return next((outcome for outcome in outcomes if outcome.failure), None)
        finally:
            server.use(virtual_scripts())


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if m.quick or m.where], ids=lambda m: m.name)
def test_a_planted_bug_is_found_soon(simulated: Server, mutant: Mutant, tmp_path: Path) -> None:
    assert found(simulated, mutant, tmp_path, 15)


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_every_planted_bug_is_found(simulated: Server, mutant: Mutant, tmp_path: Path) -> None:
    assert found(simulated, mutant, tmp_path, 1000)


@pytest.mark.campaign
@pytest.mark.timeout(600)
def test_a_failure_is_made_small_and_replays(simulated: Server, tmp_path: Path) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.quick)
    outcome = found(simulated, mutant, tmp_path / "first", 15)
    assert outcome is not None
    with applied(mutant, tmp_path / "again") as library:
        simulated.use(library)
        try:
            kept, last = shrink(simulated, outcome)
            again = replay(simulated, write(kept, last, tmp_path))
        finally:
            simulated.use(virtual_scripts())
    assert len(kept) <= 30
    assert kind_of(again.failure) == kind_of(outcome.failure)


def test_delta_debugging_finds_the_few_that_matter() -> None:
    names = [str(number) for number in range(100)]
    kept = minimal(names, lambda some: {"17", "80"} <= set(some), lambda: True)
    assert kept == ["17", "80"]
