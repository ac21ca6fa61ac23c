"""docs/spark.md: its tour runs, block after block, up to what needs a cluster."""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

from rqretry.spark import options
from tests.edges.spark.pipeline import Pipeline

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

PAGE = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
BLOCKS = BLOCK.findall(PAGE)
HERE = BLOCK.findall(PAGE.partition("\n## On a cluster\n")[0])
"""Those that need no other machine."""


@pytest.mark.campaign
def test_the_tour_runs(pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RQRETRY_NAMESPACE", pipeline.namespace)
    code = "\n".join(HERE).replace("redis://localhost:6379/0", pipeline.url)
    # The session is that of all tests: it stays, and does not see this test's environment.
    code = code.replace("spark.stop()", "")
    for name in ("finished", "orders.parquet", "archive"):  # the JVM has a folder of its own
        code = code.replace(f'"{name}', f'"{tmp_path}/{name}')
    code = code.replace("url=url", f'url=url, namespace="{pipeline.namespace}"')
    exec(compile(code, "docs/spark.md", "exec"), {"__name__": "tour"})
    assert pipeline.stored("copies") == 1000


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_of_the_tour_compiles_and_imports_what_there_is(block: str) -> None:
    tree = ast.parse(block)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            module = import_module(str(node.module))
            assert all(hasattr(module, alias.name) for alias in node.names)


def test_every_option_is_in_the_table() -> None:
    for name in options.NAMES:
        assert f"`{name}`" in PAGE
