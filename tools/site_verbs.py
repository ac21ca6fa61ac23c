"""What griffe is taught for the reference: a `Verb` is the method that users call.

The class has `publish = Verb(Operations.publish)`, which tells a reader nothing. Here it gets the
signature and the docstring of the operation, without its first parameter and with what it returns.
"""

import re
from typing import Any

import griffe

VERB = re.compile(r"Verb\((.+)\)")
OPERATION = re.compile(r"Operation\[(.*)\]")


class Verbs(griffe.Extension):
    """Replaces each Verb by a function."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Look at every class of the package."""
        for found in _classes(pkg):
            for name, member in list(found.attributes.items()):
                verb = VERB.fullmatch(str(member.value))
                if verb:
                    found[name] = _method(found, name, verb[1])


def _classes(module: griffe.Module) -> list[griffe.Class]:
    """The classes that are written in this module, and in those below it."""
    own: list[Any] = [member for member in module.members.values() if not member.is_alias]
    found = [member for member in own if member.is_class]
    return found + [one for member in own if member.is_module for one in _classes(member)]


def _method(found: griffe.Class, name: str, operation: str) -> griffe.Function:
    """The operation as a method."""
    first, _, rest = operation.partition(".")
    path = ".".join(filter(None, (found.module.resolve(first), rest)))
    origin: Any = found.package[path.removeprefix(f"{found.package.path}.")]
    returned = OPERATION.sub(r"\1", str(origin.returns or "None"))
    kinds = (griffe.ParameterKind.positional_only,)
    own = [p for p in list(origin.parameters)[1:] if p.name != "/" or p.kind not in kinds]
    method = griffe.Function(
        name, parameters=griffe.Parameters(*own), returns=returned, lineno=origin.lineno,
        endlineno=origin.endlineno, docstring=origin.docstring,
    )  # fmt: skip
    method.labels |= {"verb"}
    return method
