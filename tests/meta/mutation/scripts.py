"""Drop every Redis call of every script and flip every comparison, and see that a test notices.

Each mutant runs in a forked process against the tests that use its script, on a real server, the
quickest first. What was found is kept in .script-mutants.jsonl, so that the tool resumes where it
stopped; after a change of a test, --again tries those that survived.

    python -m tests.meta.mutation.scripts                 all that are not known yet, then the page
    python -m tests.meta.mutation.scripts lease expire    those of some files
    python -m tests.meta.mutation.scripts --again         those that survived, once more
    python -m tests.meta.mutation.scripts --page          only write docs/mutants.md

Exit status 1 if fewer than 95 of 100 mutants were caught, or a survivor has no reason in
tests/meta/mutation/survivors.toml.
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
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import pytest

from rqretry.protocol import scripts
from tests.meta.mutation.script_changes import Mutant, mutants_of
from tests.meta.mutation.script_tests import OPTIONS, SUITES, tests_for, touched_tests

ROOT = Path(__file__).resolve().parents[3]

RESULTS = ROOT / ".script-mutants.jsonl"
REASONS = Path(__file__).with_name("survivors.toml")
PAGE = ROOT / "docs" / "mutants.md"
CAUGHT, SURVIVED, HUNG = "caught", "survived", "hung"
BAR = 0.95
TEST_SECONDS = 120
MUTANT_SECONDS = 1800.0
"""After so long a mutant is given up, and is neither caught nor alive."""
MEMORY_BYTES = 4 << 30
FEW = 40
_TESTS_FAILED, _NO_TESTS = 1, 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the chosen mutants and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "files", nargs="*", help="names such as lease or include/fence; default: all"
    )
    parser.add_argument("--jobs", type=int, default=2, help="how many at once; default 2")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of tests, default 60")
    parser.add_argument("--again", action="store_true", help="those that survived, once more")
    parser.add_argument(
        "--look", nargs="+", default=[], help="changed tests: look again which scripts they use"
    )
    parser.add_argument("--page", action="store_true", help="only write docs/mutants.md")
    options = parser.parse_args(arguments)
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
    return not files or "all" in files or path.removesuffix(".lua") in files


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
    for name, module in list(sys.modules.items()):
        if any(isinstance(value, scripts.ScriptLibrary) for value in vars(module).values()):
            sys.exit(f"{name} reads the scripts when it is imported, where no mutant is yet")


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
                report(mutant, result, time.monotonic() - begun, f"{done}/{len(todo)}", by)
        time.sleep(0.02)


def noticed_in(pid: int) -> Path:
    """The file in which a process notes the test that caught its mutant."""
    return RESULTS.with_suffix(f".{pid}")


def taken_from(note: Path) -> str:
    """What a process noted; "" for nothing."""
    by = note.read_text(encoding="utf-8") if note.exists() else ""
    note.unlink(missing_ok=True)
    return by


def report(mutant: Mutant, result: str, seconds: float, progress: str, by: str) -> None:
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
        for part in (tests[:FEW], tests[FEW:]):  # the first few catch most mutants in a second
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

    def __init__(self, tests: Sequence[str], note: Path) -> None:
        self._order = {node: at for at, node in enumerate(tests)}
        self._note = note

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note which test failed, and how."""
        if report.failed:
            how = str(report.longrepr).strip().rpartition("\n")[2]
            self._note.write_text(f"{report.nodeid}: {how[:100]}", encoding="utf-8")

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
    """Write docs/mutants.md, where all of them were tried; the exit status of the tool."""
    results = read_results()
    reasons = tomllib.loads(REASONS.read_text(encoding="utf-8"))
    tried = [m for m in mutants if m.name in results]
    alive = [m for m in tried if results[m.name] != CAUGHT]
    share = 1 - len(alive) / len(tried) if tried else 0.0
    if len(tried) == len(mutants):
        PAGE.write_text(page(mutants, alive, reasons), encoding="utf-8")
    unknown = [m.name for m in alive if m.name not in reasons]
    print(f"{len(tried) - len(alive)} of {len(tried)} mutants caught ({len(mutants)} there are)")
    for name in unknown:
        print(f"survived without a reason: {name}")
    return 1 if unknown or share < BAR else 0


def page(mutants: Sequence[Mutant], alive: Sequence[Mutant], reasons: Mapping[str, str]) -> str:
    """The text of docs/mutants.md."""
    count, rows = len(mutants), []
    for path in sorted({m.path for m in mutants}):
        here = sum(m.path == path for m in mutants)
        left = sum(m.path == path for m in alive)
        rows.append(f"| {path} | {here} | {here - left} | {left} |")
    survivors = [f"- {m.name}: {reasons.get(m.name, '**no reason yet**')}" for m in alive]
    return _INTRODUCTION.format(
        count=count, caught=count - len(alive), share=f"{100 * (1 - len(alive) / count):.1f}",
        drops=sum(m.kind == "drop" for m in mutants), flips=sum(m.kind == "flip" for m in mutants),
        rows="\n".join(rows), survivors="\n".join(survivors) or "None.",
    )  # fmt: skip


_INTRODUCTION = """# Mutants of the scripts

What would the tests notice if a script were wrong? `make mutants FILES=all` makes every mutant of
two kinds: a Redis call is dropped (where its answer is used, it answers nothing), or a comparison
is flipped. Each runs on a real server against the tests that use its script: the script's own, the
crash points, the model and the checker. It is caught when one of them fails.

Of {count} mutants, {drops} with a call dropped and {flips} with a comparison flipped, **{caught}
were caught, {share} %**.

The rules are broken by hand, too, each in words and by behaviour: `make mutants`, and the pages
[conformance](conformance.md) and [guarantees](guarantees.md).

| file | mutants | caught | survived |
|---|---|---|---|
{rows}

## Survivors

A survivor is a missing test, or a change without any effect; the reason is given for each.

{survivors}
"""


if __name__ == "__main__":
    sys.exit(main())
