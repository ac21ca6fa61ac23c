"""What the package can be made to run: nothing that a message names, nothing that is data."""

import ast
import asyncio
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rqretry import Message
from tests.contract.integration.harness import Lab, Seen

PACKAGE = Path(__file__).resolve().parents[3] / "rqretry"
BANNED_CALLS = {"eval", "exec", "compile", "__import__"}
BANNED_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "yaml"}
BANNED_ATTRIBUTES = {("os", "system"), ("os", "popen"), ("subprocess", "getoutput")}
IMPORTS_BY_NAME = {
    "rqretry/__main__.py": "the program, by its name",
    "rqretry/app.py": "include=, which the app names",
    "rqretry/transport/connection.py": "hiredis, by its name",
    "rqretry/cli/errors.py": "the commands of the program, from its own table",
    "rqretry/core/lazy_exports.py": "the modules of a package, from its own stub",
    "rqretry/supervision/app_loader.py": "MODULE:APP, which the operator names",
    "rqretry/testing/bound_app.py": "for tests, from its own table",
    "rqretry/testing/plugin.py": "for tests, by their names",
    "rqretry/testing/lab_servers.py": "for tests, by their names",
    "rqretry/observability/trace_settings.py": "a module of the package, by its name",
    "rqretry/core/schedule.py": "cronsim, by its name",
    "rqretry/core/compression.py": "zstandard, by its name",
    "rqretry/core/typed_body.py": "msgspec and pydantic, by their names",
    "rqretry/consumer/process_pool.py": "a registered handler, in the process that runs it",
}
PICKLES = {
    "rqretry/consumer/process_pool.py": "between a worker and its own child, over their pipe"
}


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield f"rqretry/{path.relative_to(PACKAGE)}", ast.parse(path.read_text(encoding="utf-8"))


def names_of(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or "", *(alias.name for alias in node.names)]
    return []


def test_nothing_runs_data_as_code_or_a_shell() -> None:
    found = []
    for name, tree in trees():
        for node in ast.walk(tree):
            banned = {module.split(".")[0] for module in names_of(node)} & BANNED_MODULES
            if isinstance(node, ast.Call):
                function = node.func
                if isinstance(function, ast.Name) and function.id in BANNED_CALLS:
                    banned.add(function.id)
                if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
                    called = (function.value.id, function.attr)
                    banned |= {".".join(called)} if called in BANNED_ATTRIBUTES else set()
                banned |= {f"{k.arg}=" for k in node.keywords if k.arg == "shell"}
            found += [f"{name}:{getattr(node, 'lineno', 0)} {word}" for word in sorted(banned)]
    assert found == []


@pytest.mark.parametrize(
    ("word", "known"), [("import_module", IMPORTS_BY_NAME), ("ForkingPickler", PICKLES)]
)
def test_modules_are_imported_and_objects_restored_only_where_no_message_has_a_say(
    word: str, known: dict[str, str]
) -> None:
    found = {
        name
        for name, tree in trees()
        for node in ast.walk(tree)
        if word in names_of(node) or (isinstance(node, ast.Attribute) and node.attr == word)
    }
    assert found == set(known)


class Watching(MetaPathFinder):
    """Notes what is looked for, and finds nothing."""

    def __init__(self) -> None:
        self.wanted: list[str] = []

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Somebody imports."""
        self.wanted.append(fullname)
        return None


HOSTILE: list[Any] = [
    {"task": "this", "module": "this", "function": "antigravity", "__class__": "os.system"},
    ["this", "this:app", "antigravity.fly"],
    b"cos\nsystem\n(S'touch /nowhere'\ntR.",
    "__import__('this')",
    {"exc_type": "this.Error", "exc_module": "this", "exc_message": "x"},
]


async def test_a_message_that_names_modules_and_functions_has_nothing_imported(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, seen = lab.app(), Seen()

    @app.consumer("t", group="g", max_retries=0)
    async def handle(message: Message[Any]) -> None:
        seen.add(message)

    @app.task(max_retries=0)
    async def add(first: int, second: int) -> None:
        seen.add(first)  # type: ignore[arg-type]

    finder = Watching()
    async with lab.working(app):
        await app.publish("t", "warm")
        await seen.count(1)
        monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
        for body in HOSTILE:
            await app.publish("t", body, headers={"handler": "this:app", "task": "os.system"})
            await app.publish("add", body)
        await seen.count(1 + len(HOSTILE))
        async with asyncio.timeout(10):
            while len(await app.admin.dead_letters("add")) < len(HOSTILE):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    assert not {"this", "antigravity", "os.system"} & set(finder.wanted)
    assert "this" not in sys.modules
