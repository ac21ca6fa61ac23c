"""docs/guarantees.md is complete: every promise, every rule, and tests that exist for each."""

import re
from pathlib import Path

import pytest

from tests.meta.mutation.rules import CASES
from tests.meta.mutation.test_cases import names_in

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
PROMISES, IMPOSSIBLE, FAULTS = 9, 7, 11
_ROW = re.compile(r"^\| *([GR]\d+) *\|([^|]*)\|([^|]*)\|$", re.MULTILINE)
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
ROWS = [(name, text, _TEST.findall(tests)) for name, text, tests in _ROW.findall(PAGE)]
RULES = [name for name, _, _ in ROWS if name.startswith("R")]


def section(title: str) -> str:
    """The text under a heading, up to the next one."""
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_every_promise_and_every_rule_is_there_in_order() -> None:
    wanted = [f"G{n + 1}" for n in range(PROMISES)] + sorted(set(RULES), key=lambda r: int(r[1:]))
    assert [name for name, _, _ in ROWS] == wanted
    lines = [line for line in PAGE.splitlines() if re.match(r"\| *[GR]\d", line)]
    assert len(lines) == len(ROWS), "a row of a table cannot be read"


@pytest.mark.parametrize(("name", "text", "tests"), ROWS, ids=[row[0] for row in ROWS])
def test_it_names_tests_that_exist(name: str, text: str, tests: list[tuple[str, str]]) -> None:
    assert len(text.strip()) > 20
    assert tests, f"{name} has no test"
    assert len(set(tests)) == len(tests), f"{name} names a test twice"
    for path, test in tests:
        assert test in names_in(path), f"{path} has no test {test}"


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_broken_by_a_case_that_a_test_of_it_notices(rule: str) -> None:
    cases = [case for case in CASES if case.rule == rule]
    named = next(tests for name, _, tests in ROWS if name == rule)
    assert cases
    for case in cases:
        for test in case.tests:
            assert tuple(test.partition("[")[0].split("::")) in named


def test_what_is_impossible_and_which_fault_is_covered_are_listed() -> None:
    assert len(re.findall(r"^\d+\. ", section("What cannot be promised"), re.MULTILINE)) == (
        IMPOSSIBLE
    )
    rows = re.findall(r"^\| (?!fault|---)", section("Which fault is covered"), re.MULTILINE)
    assert len(rows) == FAULTS


def test_every_reason_for_a_duplicate_is_listed() -> None:
    cases = re.findall(r"^\* \*\*D-([a-i])\*\*", section("When a handler sees a message again"),
                         re.MULTILINE)  # fmt: skip
    assert "".join(cases) == "abcdefghi"
