"""The reference has all of the code: names, settings, metrics."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

import rqretry
from tests.edges.docs.test_deploy import known

ROOT = Path(__file__).parents[3]
REFERENCE = ROOT / "docs" / "reference"
HISTOGRAM = "rqretry_worker_attempt_seconds"


@pytest.fixture(scope="module")
def tool() -> Any:
    spec = importlib.util.spec_from_file_location("made", ROOT / "tools" / "make_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["settings.md", "metrics.md"])
def test_a_page_that_is_made_of_the_code_is_not_stale(tool: Any, page: str) -> None:
    assert (REFERENCE / page).read_text() == tool.PAGES[page](), (
        "run: python tools/make_reference.py"
    )


def test_every_metric_is_in_the_table() -> None:
    listed = set(
        re.findall(r"^\| `(rqretry_\w+)`", (REFERENCE / "metrics.md").read_text(), re.MULTILINE)
    )
    assert known() == listed


def test_every_public_name_is_in_the_reference_once() -> None:
    text = "".join(page.read_text() for page in sorted(REFERENCE.glob("*.md")))
    listed = re.findall(r"^::: rqretry\.(\w+)$", text, re.MULTILINE)
    public = {name for name in vars(rqretry)["__all__"] if not name.startswith("_")}
    assert sorted(listed) == sorted(public), "name it in a page of docs/reference/"
