"""Whatever a user gets from a public method, or hands to one, can be imported from `rqretry`."""

import inspect
import typing
from collections.abc import Iterator
from typing import Any

import rqretry

INTERNAL = {
    "AdminContext", "Operator",  # what the verbs of client.admin act in, which binds it
    "Command", "Block", "Each", "Pause",  # what an Operation yields: the admin's methods hide it
    "Keep",  # the default of a setting whose None means something
    "Candidate",  # a record that only this package makes
}  # fmt: skip


def public_types() -> list[type]:
    values = [getattr(rqretry, name) for name in vars(rqretry)["__all__"]]
    return [value for value in values if isinstance(value, type)]


def ours(hint: Any) -> Iterator[type]:
    """The classes of this package in an annotation."""
    for kind in (hint, typing.get_origin(hint)):
        if isinstance(kind, type) and kind.__module__.startswith("rqretry"):
            yield kind
    for part in typing.get_args(hint):
        for one in part if isinstance(part, list) else [part]:
            yield from ours(one)


def annotations(owner: type) -> Iterator[tuple[str, Any]]:
    """What the public attributes and methods of a class are annotated with."""
    yield from typing.get_type_hints(owner).items()
    for name, member in inspect.getmembers(owner):
        function: Any = member.fget if isinstance(member, property) else member
        if not name.startswith("_") and inspect.isroutine(function):
            yield from typing.get_type_hints(function).items()


def test_what_public_names_are_annotated_with_is_public() -> None:
    found = {
        kind.__name__: (owner.__name__, name)
        for owner in public_types()
        for name, hint in annotations(owner)
        for kind in ours(hint)
        if getattr(rqretry, kind.__name__, None) is not kind
    }

    assert set(found) <= INTERNAL, {name: found[name] for name in found.keys() - INTERNAL}
    assert set(found) >= INTERNAL, "an exception that is not needed"


def test_a_bug_of_ours_is_no_public_name_and_is_caught_by_the_base() -> None:
    from rqretry.core.errors import ScriptError  # noqa: PLC0415 - that it is not public is tested

    assert not hasattr(rqretry, "ScriptError")
    assert issubclass(ScriptError, rqretry.RqretryError)
