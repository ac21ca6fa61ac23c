"""Python with a change: a module is changed as it is imported, found by what it defines."""

import ast
import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, cast
from unittest import mock

from tests.meta.mutation.case import Constant, PythonChange, Symbol

ROOT = Path(__file__).resolve().parents[3]
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def module_of(name: str) -> str:
    """The module that defines a symbol or a constant: "Class.method", "package:function", ...

    Raises:
        LookupError: None does, or several do.
    """
    package, _, symbol = name.rpartition(":")
    folder = ROOT / "rqretry" / package
    found = [path for path in sorted(folder.rglob("*.py")) if _defines(path, symbol)]
    if len(found) != 1:
        raise LookupError(f"{name} is defined in {len(found)} modules: {[*map(str, found)]}")
    return ".".join(found[0].relative_to(ROOT).with_suffix("").parts)


def _defines(path: Path, symbol: str) -> bool:
    owner, _, attribute = symbol.partition(".")
    text = path.read_text(encoding="utf-8")
    if owner not in text or attribute not in text:
        return False
    names = _definitions(path)
    return symbol in names


@cache
def _definitions(path: Path) -> frozenset[str]:
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        found |= set(_names(node))
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for part in node.body for name in _names(part)}
    return frozenset(found)


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
    return [target.id for target in targets if isinstance(target, ast.Name)]


def install(changes: Sequence[PythonChange]) -> None:
    """Change modules when they are imported, which they must not be yet."""
    by_module: dict[str, list[PythonChange]] = {}
    for change in changes:
        by_module.setdefault(module_of(change.name), []).append(change)
    assert not by_module.keys() & sys.modules.keys(), "too late"
    if by_module:
        sys.meta_path.insert(0, _Finder(by_module))


class _Finder(MetaPathFinder):
    def __init__(self, changes: dict[str, list[PythonChange]]) -> None:
        self._changes = changes

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module, with its changes."""
        if fullname not in self._changes:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Loader(fullname, spec.origin, self._changes[fullname])
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, changes: Sequence[PythonChange]) -> None:
        super().__init__(fullname, path)
        self._changes = changes

    def get_code(self, fullname: str) -> CodeType:
        """Of the source, with other constants; never from the cache."""
        path = self.get_filename(fullname)
        tree = ast.parse(self.get_source(fullname) or "", path)
        values = {_symbol(c): c.value for c in self._changes if isinstance(c, Constant)}
        for node in tree.body:
            for name in _names(node):
                if name in values:
                    value = ast.parse(values[name], mode="eval").body
                    cast("ast.Assign", node).value = ast.copy_location(value, node)
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        """Run it, and replace its functions."""
        super().exec_module(module)
        for change in self._changes:
            if isinstance(change, Symbol):
                owner, name, wrong = _replacement(change, module)
                setattr(owner, name, wrong)


@contextmanager
def replaced(changes: Sequence[PythonChange]) -> Iterator[None]:
    """Methods of modules that are imported already, replaced for a while."""
    done = []
    try:
        for change in changes:
            assert isinstance(change, Symbol)
            assert "." in change.name, "whoever has imported a function keeps it"
            module = importlib.import_module(module_of(change.name))
            patch = mock.patch.object(*_replacement(change, module))
            patch.start()
            done.append(patch)
        yield
    finally:
        for patch in done:
            patch.stop()


def _symbol(change: PythonChange) -> str:
    return change.name.rpartition(":")[2]


def _replacement(change: Symbol, module: ModuleType) -> tuple[Any, str, Any]:
    """Where it stands, under which name, and what takes its place."""
    owner, _, name = _symbol(change).rpartition(".")
    where = getattr(module, owner) if owner else module
    original = vars(where)[name]
    if isinstance(original, classmethod | staticmethod):
        return where, name, type(original)(change.make(original.__func__))
    if isinstance(original, property):
        return where, name, property(change.make(original.fget))
    return where, name, change.make(original)
