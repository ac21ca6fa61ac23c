"""docs/conformance.md is complete: each rule has a test, each test exists, each mutation applies."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.conformance.mutations import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "conformance.md"
RULES_OF_SECTIONS = {"2": 20, "3": 6, "4": 10, "5": 8, "6": 12, "7": 10}
"""The least number of rows of each section of the specification."""
_ROW = re.compile(r"^\| (\d\.\d+) \| (.+?) \| (.+?) \|$", re.MULTILINE)
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")

ROWS = [(rule, text, _TEST.findall(tests)) for rule, text, tests in _ROW.findall(PAGE.read_text())]


def test_every_section_has_its_rules() -> None:
    for section, least in RULES_OF_SECTIONS.items():
        numbers = [int(rule.split(".")[1]) for rule, _, _ in ROWS if rule.startswith(section)]
        assert numbers == list(range(1, len(numbers) + 1)), f"section {section} skips a number"
        assert len(numbers) >= least, f"section {section} lost a rule"


@pytest.mark.parametrize(("rule", "text", "tests"), ROWS, ids=[row[0] for row in ROWS])
def test_a_rule_names_tests_that_exist(rule: str, text: str, tests: list[tuple[str, str]]) -> None:
    assert text.strip()
    assert tests, f"rule {rule} has no test"
    for path, name in tests:
        assert name in functions(path), f"{path} has no {name}"


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[f"{m.rule} {m.why}" for m in MUTATIONS])
def test_a_mutation_still_applies_and_its_tests_exist(mutation: Mutation) -> None:
    assert mutation.rule in {rule for rule, _, _ in ROWS}
    broken = mutation.applied((ROOT / mutation.path).read_text())
    if mutation.path.endswith(".py"):
        ast.parse(broken)
    for test in mutation.tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).is_file(), path
        assert not name or name in functions(path), f"{path} has no {name}"


@cache
def functions(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))
