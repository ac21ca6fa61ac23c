"""Every case can be applied: what it names exists, once, and so do its tests."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from lupa.lua51 import LuaRuntime

from rqretry.core.delay_levels import DEFAULT_LEVELS
from tests.meta.mutation.case import Case, LuaCall, LuaLine, Symbol, scores
from tests.meta.mutation.lua_changes import changed_scripts, wrapped
from tests.meta.mutation.python_changes import ROOT, module_of, replaced
from tests.meta.mutation.rules import CASES

IDS = [f"{case.rule} {case.broken}" for case in CASES]


def test_no_two_cases_of_a_rule_are_the_same() -> None:
    assert len(set(IDS)) == len(IDS)
    assert all(case.changes for case in CASES)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_what_a_case_names_exists(case: Case, tmp_path: Path) -> None:
    for change in case.python:
        assert module_of(change.name).startswith("rqretry.")
    if case.lua:
        changed_scripts(case.lua, tmp_path)
    assert case.tests
    for test in case.tests:
        path, _, name = test.partition("::")
        assert name.partition("[")[0] in names_in(path), f"{path} has no test {name}"


def test_the_scripts_of_all_cases_together_are_lua(tmp_path: Path) -> None:
    lua = LuaRuntime(encoding="utf-8")
    changes = [change for case in CASES for change in case.lua]
    assert len(changes) > 50
    for number, change in enumerate(changes):
        folder = changed_scripts([change], tmp_path / str(number))
        names = change.scripts if isinstance(change, LuaCall) else (change.script,)
        for name in names or ("lease",):
            lua.compile((folder / f"{name}.lua").read_text())


def test_a_call_is_changed_by_command_and_key() -> None:
    lua = LuaRuntime(encoding="utf-8")
    sent = lua.execute(
        "local sent = {} "
        "local function call(...) sent[#sent + 1] = table.concat({ ... }, ' ') end "
        + wrapped(scores("inflight", "score + 10"))
        + "call('ZADD', 'x:inflight', 'XX', 5, 'a', '6', 'b') "
        "call('ZADD', 'x:ready', 5, 'a') call('ZREM', 'x:inflight', 'a') return sent"
    )
    assert [*sent.values()] == ["ZADD x:inflight XX 15 a 16 b", "ZADD x:ready 5 a",
                                "ZREM x:inflight a"]  # fmt: skip


def test_an_unknown_script_or_symbol_is_reported(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="no script nothing"):
        changed_scripts([LuaLine("nothing", "")], tmp_path)
    with pytest.raises(LookupError, match="defined in 0 modules"):
        module_of("Nothing.at_all")
    with pytest.raises(LookupError, match=r"defined in \d+ modules"):
        module_of("main")


def test_a_method_is_replaced_for_a_while() -> None:
    later = Symbol("LevelTable.delay_ms", lambda f: lambda self, level: f(self, level + 1))
    with replaced([later]):
        assert DEFAULT_LEVELS.delay_ms(1) == 5000
    assert DEFAULT_LEVELS.delay_ms(1) == 1000


def test_the_cases_do_not_import_what_they_change() -> None:
    """What is imported with them is there before it can be changed: every case would survive."""
    look = "import sys, tests.meta.mutation.rules; print([m for m in sys.modules if m[:7] == NAME])"
    code = look.replace("NAME", "'rqretry'")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"


@cache
def names_in(path: str) -> frozenset[str]:
    """The names of the tests of a file."""
    assert Path(path).name.startswith("test_"), f"pytest does not look into {path}"
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    tree = ast.parse((ROOT / path).read_text())
    names = {node.name for node in tree.body if isinstance(node, kinds)}
    return frozenset(name for name in names if name.startswith("test_"))
