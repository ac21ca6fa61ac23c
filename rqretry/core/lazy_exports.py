"""Attributes of a package that are imported when they are first used (PEP 562)."""

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pkgutil import get_data
from typing import Any

_EXPORT = re.compile(r"^from (\S+) import \(?\s*(\w+) as \2\b", re.MULTILINE)


def attributes(package: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """A package's `__all__`, `__getattr__` and `__dir__`, by what its stub (__init__.pyi) names."""
    stub = get_data(package, "__init__.pyi") or b""
    modules = {name: module for module, name in _EXPORT.findall(stub.decode())}

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return [*modules], get, names
