"""Which tests use which script: what a mutant of a script is tried against."""

import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from rqretry.protocol import scripts
from rqretry.transport import pipeline, session, store
from rqretry.transport.node import Node

ROOT = Path(__file__).resolve().parents[3]
TOUCHED = ROOT / ".script-mutants-tests.json"
SUITES = (
    "tests/lua", "tests/model/test_conservation.py", "tests/model/checker/test_stories.py",
    "tests/model/checker/test_journal.py", "tests/contract/integration/test_timing.py",
)  # fmt: skip
LEFT_OUT = ("[redis-6.2", "[fakeredis", "[cluster", "known_bug")
"""The same tests on other servers, which add nothing; and those that break scripts themselves."""
OPTIONS = ("-q", "-p", "no:cacheprovider", "--assert", "plain")
CLOCK = "clock"
"""The include that the other tests replace; the tests of the real clock see to it."""

_TESTS_FAILED, _NO_TESTS = 1, 5
_NO_SCRIPT = ""
"""Where the table has the tests that use no script."""

Touched = dict[str, dict[str, float]]
"""Script to the tests that use it, with their seconds."""


class Recorder:
    """A plugin: which test uses which script; what is known already is kept."""

    def __init__(self, known: Touched) -> None:
        self.touched = known
        self._now: set[str] = set()
        self._failed: set[str] = set()

    def use(self, name: str) -> None:
        """A script is sent."""
        self._now.add(name)

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[Any]) -> None:
        """Leave out what is known and what is not wanted; and forget tests that are gone."""
        _ = config
        here = {item.nodeid for item in items}
        for script, tests in self.touched.items():
            self.touched[script] = {node: s for node, s in tests.items() if node in here}
        known = set().union(*self.touched.values())
        items[:] = [i for i in items if i.nodeid not in known and not _elsewhere(i.nodeid)]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Leave out what fails without any mutant."""
        if report.failed:
            self._failed.add(report.nodeid)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterable[None]:
        """Note what a test used."""
        self._now = set()
        begun = time.monotonic()
        yield
        seconds = time.monotonic() - begun
        if item.nodeid not in self._failed:
            for name in self._now or {_NO_SCRIPT}:
                self.touched.setdefault(name, {})[item.nodeid] = seconds


def _elsewhere(node: str) -> bool:
    return any(name in node for name in LEFT_OUT)


def touched_tests(again: Sequence[str]) -> Touched:
    """Which tests use which script.

    It is kept. What is new since the last time is looked up, and what has changed if it is named.
    """
    pid = os.fork()  # nothing of a test may stay in this process: mutants are its children
    if pid == 0:
        os._exit(look_up(again))
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) not in {0, _TESTS_FAILED, _NO_TESTS}:
        sys.exit("the tests do not run")
    return _kept()


def look_up(again: Sequence[str]) -> int:
    """Run tests that are not known, or are named, and keep what they used; the exit status."""
    known = {
        script: {node: s for node, s in tests.items() if not node.startswith(tuple(again))}
        for script, tests in _kept().items()
    }
    recorder, spell = Recorder(known), session.spell

    def noted(node: Node, command: Any) -> Any:
        recorder.use(command.verb)
        return spell(node, command)

    for module in (session, store, pipeline):
        module.spell = noted  # type: ignore[attr-defined]
    status = int(pytest.main([*OPTIONS, *SUITES], plugins=[recorder]))
    if status in {0, _TESTS_FAILED, _NO_TESTS}:
        TOUCHED.write_text(json.dumps(recorder.touched), encoding="utf-8")
    return status


def _kept() -> Touched:
    if not TOUCHED.exists():
        return {}
    touched: Touched = json.loads(TOUCHED.read_text(encoding="utf-8"))
    return touched


def tests_for(path: str, touched: Touched, budget: float) -> list[str]:
    """Tests that use a script, or one of the scripts that include it, within a budget of seconds.

    First those of the script itself and its crash points, then the quickest others.
    """
    stem = Path(path).stem
    users = [stem]
    if path.startswith("include/"):
        users = [n for n in scripts.names() if f"-- @include {stem}\n" in _source(n)]
    found: dict[str, float] = {}
    for user in users:
        found.update(touched.get(user, {}))
    if stem == CLOCK:
        found = {node: s for node, s in found.items() if "/integration/" in node}
    chosen = sorted(found, key=lambda node: (not _is_own(node, stem), found[node]))
    spent = list(accumulate(found[node] for node in chosen))
    return [node for node, seconds in zip(chosen, spent, strict=True) if seconds <= budget]


def _is_own(node: str, stem: str) -> bool:
    crashes = "/test_crash_points.py" in node and stem in node.partition("[")[2]
    return crashes or f"/test_{stem}.py" in node


def _source(name: str) -> str:
    return (ROOT / "lua" / f"{name}.lua").read_text(encoding="utf-8")
