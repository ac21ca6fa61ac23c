"""Importing the package costs little; its names come when they are used, with their types."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


def stated(package: Any) -> dict[str, str]:
    """Name to module, as the stub tells type checkers."""
    tree = ast.parse(Path(package.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    return {
        alias.name: str(node.module)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


@pytest.mark.parametrize("name", ["rqretry", "rqretry.testing"])
def test_the_stub_of_a_lazy_package_says_what_it_gives(name: str) -> None:
    package = importlib.import_module(name)
    stub = stated(package)

    assert sorted(stub) == sorted(package.__all__)
    for public, module in stub.items():
        assert getattr(package, public) is getattr(importlib.import_module(module), public)
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        package.Nothing  # noqa: B018 - looked up for its error


@pytest.mark.parametrize("module", ["rqretry", "rqretry.testing", "rqretry.testing.plugin"])
def test_importing_it_does_not_import_redis(module: str) -> None:
    code = (
        f"import pytest, sys, {module};"
        "print([m for m in sys.modules if m in ('redis', 'msgpack', 'asyncio', 'rqretry.client')"
        " or m.startswith('rqretry.')])"
    )
    found = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True)

    loaded = ast.literal_eval(found)
    assert set(loaded) <= {
        "asyncio", "rqretry.core", "rqretry.core.lazy_exports", "rqretry.testing",
        "rqretry.testing.plugin",
    }  # fmt: skip
