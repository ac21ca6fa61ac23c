"""docs/conformance.md is complete: each rule has a test that exists and a mutation that applies."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.contract.conformance.mutations import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "conformance.md").read_text()
RULES_OF_SECTIONS = {"2": 23, "3": 7, "4": 10, "5": 8, "6": 12, "7": 10}
"""How many rules each section of the specification has."""
_ROW = re.compile(r"^\| *(\d+\.\d+) *\|([^|]*)\|([^|]*)\|$", re.MULTILINE)
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")

ROWS = [(rule, text, _TEST.findall(tests)) for rule, text, tests in _ROW.findall(PAGE)]


def test_every_section_has_its_rules() -> None:
    wanted = [f"{section}.{n + 1}" for section, n in numbered(RULES_OF_SECTIONS)]
    assert [rule for rule, _, _ in ROWS] == wanted
    lines = [line for line in PAGE.splitlines() if re.match(r"\| *\d", line)]
    assert len(lines) == len(ROWS), "a row of the table cannot be read"


@pytest.mark.parametrize(("rule", "text", "tests"), ROWS, ids=[row[0] for row in ROWS])
def test_a_rule_names_tests_that_exist(rule: str, text: str, tests: list[tuple[str, str]]) -> None:
    assert text.strip()
    assert tests, f"rule {rule} has no test"
    assert len(set(tests)) == len(tests), f"rule {rule} names a test twice"
    for path, name in tests:
        assert name in names_in(path), f"{path} has no test {name}"


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[f"{m.rule} {m.why}" for m in MUTATIONS])
def test_a_mutation_still_applies_and_its_tests_exist(mutation: Mutation) -> None:
    assert mutation.rule in {rule for rule, _, _ in ROWS}
    assert_applies(mutation)


def assert_applies(mutation: Mutation) -> None:
    """The piece that it replaces is there once, and so are its tests."""
    broken = mutation.applied((ROOT / mutation.path).read_text())
    if mutation.path.endswith(".py"):
        ast.parse(broken)
    assert mutation.tests
    for test in mutation.tests:
        path, _, name = test.partition("::")
        assert name.partition("[")[0] in names_in(path), f"{path} has no test {name}"


def test_every_rule_is_broken_by_a_mutation_and_none_twice_in_the_same_way() -> None:
    assert {rule for rule, _, _ in ROWS} == {mutation.rule for mutation in MUTATIONS}
    again = Counter((m.path, m.find, m.put) for m in MUTATIONS)
    assert max(again.values()) == 1


def numbered(counts: dict[str, int]) -> list[tuple[str, int]]:
    """Each section with 0, 1, ... up to its count."""
    return [(section, n) for section, count in counts.items() for n in range(count)]


@cache
def names_in(path: str) -> frozenset[str]:
    """The names of the tests of a file."""
    assert Path(path).name.startswith("test_"), f"pytest does not look into {path}"
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    tree = ast.parse((ROOT / path).read_text())
    names = {node.name for node in tree.body if isinstance(node, kinds)}
    return frozenset(name for name in names if name.startswith("test_"))
