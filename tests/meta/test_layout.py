"""Whoever changes a file knows where its unit tests are by its path."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "tests" / "unit"
OF_THE_WHOLE_PACKAGE = {"test_public_names.py"}
FILES = sorted(path.relative_to(UNIT) for path in UNIT.rglob("test_*.py"))


@pytest.mark.parametrize("path", FILES, ids=str)
def test_the_path_of_unit_tests_is_that_of_their_module(path: Path) -> None:
    module = ROOT / "rqretry" / path.with_name(path.name.removeprefix("test_"))
    assert path.name in OF_THE_WHOLE_PACKAGE or module.exists(), f"there is no {module}"
