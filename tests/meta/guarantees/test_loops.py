"""Every loop that may go on for ever has a bound or a back-off."""

import ast
import itertools
from collections.abc import Iterator
from pathlib import Path

import rqretry
from tests.meta.guarantees.loops import LOOPS

PACKAGE = Path(rqretry.__file__).parent
_ENDLESS = ("count", "cycle", "repeat")
_Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def loops() -> Iterator[str]:
    """Every `while` loop, and every `for` over something endless, as LOOPS names it."""
    for file in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        yield from (f"{file.relative_to(PACKAGE)}::{name}" for name in _within(tree, ()))


def _within(node: ast.AST, names: tuple[str, ...]) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        inside = (*names, child.name) if isinstance(child, _Scope) else names
        endless = isinstance(child, ast.For | ast.AsyncFor) and _is_endless(child.iter)
        if isinstance(child, ast.While) or endless:
            yield ".".join(inside)
        yield from _within(child, inside)


def _is_endless(iterated: ast.expr) -> bool:
    if not isinstance(iterated, ast.Call):
        return False
    called = iterated.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in _ENDLESS and hasattr(itertools, name)


def test_every_loop_has_a_declared_bound_or_back_off() -> None:
    found = list(loops())

    assert sorted(set(found) - set(LOOPS)) == [], "think of what ends them: see loops.py"
    assert sorted(set(LOOPS) - set(found)) == [], "they are there no longer"
    assert len(found) == len(set(found)), "two loops in a function: divide it"
