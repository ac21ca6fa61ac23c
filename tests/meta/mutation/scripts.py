"""Drop every Redis call of every script and flip every comparison, and see that a test notices.

Each mutant runs in a forked process against the tests that use its script, on a real server, the
quickest first. What was found is kept in .script-mutants.jsonl, so that the tool goes on where it
stopped; after a change of a test, --again tries those that survived.

    python tools/script_mutants.py                 all that are not known yet, then the page
    python tools/script_mutants.py lease expire    those of some files
    python tools/script_mutants.py --again         those that survived, once more
    python tools/script_mutants.py --page          only write docs/mutants.md

Exit status 1 if fewer than 95 of 100 mutants were caught, or a survivor has no reason in
tests/lua/survivors.toml.
"""

import argparse
import json
import os
import resource
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rqretry.protocol import scripts  # noqa: E402
from tests.support.lua_mutants import Mutant, mutants_of  # noqa: E402
from tests.support.mutant_tests import OPTIONS, SUITES, tests_for, touched_tests  # noqa: E402

RESULTS = ROOT / ".script-mutants.jsonl"
REASONS = ROOT / "tests" / "lua" / "survivors.toml"
PAGE = ROOT / "docs" / "mutants.md"
CAUGHT, SURVIVED, HUNG = "caught", "survived", "hung"
BAR = 0.95
TEST_SECONDS = 120
MUTANT_SECONDS = 1800.0
"""After so long a mutant is given up, and is neither caught nor alive."""
MEMORY_BYTES = 4 << 30
FEW = 40
_TESTS_FAILED, _NO_TESTS = 1, 5


def main() -> int:
    """Try the chosen mutants and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("files", nargs="*", help="names such as lease or include/fence")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once; default 2")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of tests, default 60")
    parser.add_argument("--again", action="store_true", help="those that survived, once more")
    parser.add_argument(
        "--look", nargs="+", default=[], help="changed tests: look again which scripts they use"
    )
    parser.add_argument("--page", action="store_true", help="only write docs/mutants.md")
    options = parser.parse_args()
    os.chdir(ROOT)
    mutants = mutants_of(ROOT / "lua")
    if not options.page:
        wanted = [m for m in mutants if _is_chosen(m.path, options.files)]
        results = read_results()
        if options.again:
            todo = [m for m in wanted if results.get(m.name, CAUGHT) != CAUGHT]
        else:
            todo = [m for m in wanted if results.get(m.name) not in {CAUGHT, SURVIVED}]
        touched = touched_tests(options.look)
        warm_up()
        if todo:
            require_a_pass(todo[0], tests_for(todo[0].path, touched, options.budget))
        run_all(todo, lambda path: tests_for(path, touched, options.budget), max(1, options.jobs))
    return write_page(mutants)


def _is_chosen(path: str, files: Sequence[str]) -> bool:
    return not files or path.removesuffix(".lua") in files


def read_results() -> dict[str, str]:
    """What is known of each mutant; the newest line counts."""
    if not RESULTS.exists():
        return {}
    lines = (json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines())
    return {line["name"]: line["result"] for line in lines}


def warm_up() -> None:
    """Import every test, and run none: what takes long is done once, before any fork."""
    with Path(os.devnull).open("w", encoding="utf-8") as nothing, redirect_stdout(nothing):
        pytest.main([*OPTIONS, "--collect-only", *SUITES])


def require_a_pass(mutant: Mutant, tests: Sequence[str]) -> None:
    """End the program where tests fail in a forked process although nothing is changed."""
    if not tests:
        sys.exit(f"no test uses {mutant.path}")
    text = (ROOT / "lua" / mutant.path).read_text(encoding="utf-8")
    pid, status = os.waitpid(start(mutant._replace(text=text), tests), 0)
    by = taken_from(noticed_in(pid))
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"the tests of {mutant.path} fail without any mutant: {by}")


def run_all(todo: Sequence[Mutant], tests: Callable[[str], list[str]], jobs: int) -> None:
    """Try mutants in forked processes, so many at once."""
    running: dict[int, tuple[Mutant, float]] = {}
    waiting = list(todo)
    done = 0
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop(0)
            running[start(mutant, tests(mutant.path))] = (mutant, time.monotonic())
        for pid, (mutant, begun) in list(running.items()):
            result = finished(pid, time.monotonic() - begun)
            if result:
                del running[pid]
                done += 1
                by = taken_from(noticed_in(pid))
                tell(mutant, result, time.monotonic() - begun, f"{done}/{len(todo)}", by)
        time.sleep(0.02)


def noticed_in(pid: int) -> Path:
    """The file in which a process tells by which test its mutant was caught."""
    return RESULTS.with_suffix(f".{pid}")


def taken_from(told: Path) -> str:
    """What a process told; "" for nothing."""
    by = told.read_text(encoding="utf-8") if told.exists() else ""
    told.unlink(missing_ok=True)
    return by


def tell(mutant: Mutant, result: str, seconds: float, progress: str, by: str) -> None:
    """Keep and print one result."""
    line = {"name": mutant.name, "result": result, "seconds": round(seconds, 2), "by": by}
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    print(f"{progress:>9} {result:8} {seconds:6.1f} s  {mutant.name}", flush=True)


def start(mutant: Mutant, tests: Sequence[str]) -> int:
    """Run a mutant's tests in a process of its own; answers its id."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            status = in_child(mutant, tests)
        finally:
            os._exit(status)
    return pid


def in_child(mutant: Mutant, tests: Sequence[str]) -> int:
    """The exit status of pytest with a mutant in place of its file."""
    os.setsid()  # its servers go with it
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    if not tests:
        return _NO_TESTS
    with tempfile.TemporaryDirectory(prefix="rqretry-mutant-") as folder:
        changed = Path(folder) / "lua"
        copy_scripts(changed)
        (changed / mutant.path).write_text(mutant.text, encoding="utf-8")
        scripts.script_directory = lambda: changed
        options = [*OPTIONS, "-x", "--timeout", str(TEST_SECONDS)]
        for part in (tests[:FEW], tests[FEW:]):  # the few tell of most mutants in a second
            files = sorted({node.partition("::")[0] for node in part})
            status = (
                int(
                    pytest.main([*options, *files], plugins=[Chosen(part, noticed_in(os.getpid()))])
                )
                if part
                else 0
            )
            if status:
                return status
        return 0


def copy_scripts(folder: Path) -> None:
    """The scripts as they are, elsewhere."""
    for path in (ROOT / "lua").rglob("*.lua"):
        target = folder / path.relative_to(ROOT / "lua")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())


class Chosen:
    """A plugin: only these tests, in this order."""

    def __init__(self, tests: Sequence[str], told: Path) -> None:
        self._order = {node: at for at, node in enumerate(tests)}
        self._told = told

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tell which test noticed, and how."""
        if report.failed:
            how = str(report.longrepr).strip().rpartition("\n")[2]
            self._told.write_text(f"{report.nodeid}: {how[:100]}", encoding="utf-8")

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Choose and sort."""
        chosen = [item for item in items if item.nodeid in self._order]
        items[:] = sorted(chosen, key=lambda item: self._order[item.nodeid])


def finished(pid: int, seconds: float) -> str:
    """How a mutant ended, "" while it runs."""
    done, status = os.waitpid(pid, os.WNOHANG)
    if done == 0 and seconds < MUTANT_SECONDS:
        return ""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # what it left behind, or all of it
    if done == 0:
        os.waitpid(pid, 0)
        return HUNG
    code = os.waitstatus_to_exitcode(status)
    return {0: SURVIVED, _TESTS_FAILED: CAUGHT}.get(code, f"did not run ({code})")


def write_page(mutants: Sequence[Mutant]) -> int:
    """Write docs/mutants.md; the exit status of the tool."""
    results = read_results()
    reasons = tomllib.loads(REASONS.read_text(encoding="utf-8"))
    tried = [m for m in mutants if m.name in results]
    alive = [m for m in tried if results[m.name] != CAUGHT]
    caught = len(tried) - len(alive)
    rows = []
    for path in sorted({m.path for m in mutants}):
        of_file = [m for m in tried if m.path == path]
        here = sum(m.path == path for m in alive)
        rows.append(f"| {path} | {len(of_file)} | {len(of_file) - here} | {here} |")
    told = [f"- line {m.line}, {m.name}: {reasons.get(m.name, '**no reason yet**')}" for m in alive]
    share = caught / len(tried) if tried else 0.0
    PAGE.write_text(
        _INTRODUCTION.format(
            all=len(mutants), tried=len(tried), caught=caught, share=f"{100 * share:.1f}",
            drops=sum(m.kind == "drop" for m in tried), flips=sum(m.kind == "flip" for m in tried),
            rows="\n".join(rows), survivors="\n".join(told) or "None.",
        ),
        encoding="utf-8",
    )  # fmt: skip
    unknown = [m.name for m in alive if m.name not in reasons]
    print(f"{caught} of {len(tried)} mutants caught ({len(mutants)} there are)")
    for name in unknown:
        print(f"survived, and nobody says why: {name}")
    return 1 if unknown or share < BAR else 0


_INTRODUCTION = """# Mutants of the scripts

What would the tests notice if a script were wrong? `make script-mutants` makes every mutant of two
kinds: a Redis call is dropped (where its answer is used, it answers nothing), or a comparison is
flipped. Each runs on a real server against the tests that use its script: the script's own, the
crash points, the model and the checker. It is caught when one of them fails.

Of {all} mutants {tried} were run, {drops} with a call dropped and {flips} with a comparison
flipped: **{caught} were caught, {share} %**.

The rules of retrying have mutants of their own, written by hand: see [conformance](conformance.md).

| file | mutants | caught | survived |
|---|---|---|---|
{rows}

## Survivors

A survivor is a missing test, or a change that nobody could notice; each says why.

{survivors}
"""


if __name__ == "__main__":
    sys.exit(main())
