"""The tests of a module, to be run once more where `lab` is another kind of server."""

from types import ModuleType
from typing import Any


def again(
    *modules: ModuleType, without: tuple[str, ...] = (), only: tuple[str, ...] = ()
) -> dict[str, Any]:
    """What modules hold, tests and fixtures, in their order: it is the order of collection.

    `only`: these of them, each of which must be there, in this order.
    """
    found = {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if not name.startswith("_") and name not in without
    }
    return {name: found[name] for name in only} if only else found
