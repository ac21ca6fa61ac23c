"""docs/conformance.md is complete: each rule has one test that exists and a case that breaks it."""

import re
from pathlib import Path

import pytest

from tests.contract.conformance import test_differences
from tests.meta.guarantees.test_table import RULES
from tests.meta.mutation.rules import CASES
from tests.meta.mutation.test_cases import names_in

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "conformance.md").read_text()
RULES_OF_SECTIONS = {"1": 23, "2": 11, "3": 10, "4": 8, "5": 13, "7": 10}
_ROW = re.compile(r"^\| *(\d+\.\d+) *\|([^|]*)\| `(tests/[\w/]+\.py)::(\w+)` \|$", re.MULTILINE)
_CELL = r"(?:[^|]|\\\|)+"
_DIFFERENCE = re.compile(
    rf"^\| (D\d+) \|{_CELL}\|{_CELL}\| ([\w, ]+) \|{_CELL}\| ((?:`tests/[\w/]+\.py::\w+` ?)+)\|$",
    re.MULTILINE,
)

PROBE = test_differences.test_rqretry_does_what_the_row_states.__name__
ROWS = _ROW.findall(PAGE)


def test_every_section_has_its_rules() -> None:
    wanted = [f"{section}.{n + 1}" for section, n in numbered(RULES_OF_SECTIONS)]
    assert [rule for rule, *_ in ROWS] == wanted
    lines = [line for line in PAGE.splitlines() if re.match(r"\| *\d", line)]
    assert len(lines) == len(ROWS), "a row of the table cannot be read, or names no test or several"


@pytest.mark.parametrize(("rule", "text", "path", "test"), ROWS, ids=[row[0] for row in ROWS])
def test_a_rule_names_a_test_that_exists_and_a_case_breaks(
    rule: str, text: str, path: str, test: str
) -> None:
    assert text.strip()
    assert test in names_in(path), f"{path} has no test {test}"
    failing = {name.partition("[")[0] for case in CASES if case.rule == rule for name in case.tests}
    assert f"{path}::{test}" in failing, f"no case breaks rule {rule} for its test"


def test_each_difference_has_a_source_and_names_a_test_that_exists() -> None:
    found = _DIFFERENCE.findall(PAGE)
    lines = [line for line in PAGE.splitlines() if line.startswith("| D")]
    assert [number for number, *_ in found] == [f"D{n + 1}" for n in range(len(lines))]
    for number, source, tests in found:
        assert set(source.split(", ")) <= {"documentation", "source", "run"}, number
        for path, test in re.findall(r"`(\S+)::(\w+)`", tests):
            assert test in names_in(path), f"{number}: {path} has no test {test}"
    probed = {number for number, _, tests in found if PROBE in tests}
    assert probed == test_differences.PROBES.keys()


def test_every_case_breaks_a_rule_of_a_page() -> None:
    rules = {rule for rule, *_ in ROWS} | set(RULES)
    assert {case.rule for case in CASES} == rules


def numbered(counts: dict[str, int]) -> list[tuple[str, int]]:
    """Each section with 0, 1, ... up to its count."""
    return [(section, n) for section, count in counts.items() for n in range(count)]
