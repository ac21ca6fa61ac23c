"""`help` explains what programs call: each argument, in sentences, without names of our own."""

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import rqretry
from tests.contract.surface.surface import callables, held

PLAIN = {"id", "name"}
"""Of the one thing that the first sentence is about, where nothing else must be given."""
ARGUMENTS_OF = re.compile(
    r"\b[Ss]ee (?:there|`?((?:\w+\.)*\w+)`?)|`(\w+)` without asyncio|of (Client),"
)
INTERNAL = re.compile(r"\b_\w+\b|AdminContext|\bOperation\b|SyncStore|ScriptLibrary")


def words_of(path: str, call: Callable[..., Any]) -> str:
    """Its docstring, and those that it refers to."""
    text, found = "", [(path, call)]
    seen: set[Any] = set()
    while found:
        path, one = found.pop()
        if one in seen:
            continue
        seen.add(one)
        own = inspect.getdoc(one) or ""
        text += own + "\n"
        for names in ARGUMENTS_OF.findall(own):
            named = next(filter(None, names), "")
            other = at(named) or at(f"{path.partition('.')[0]}.{named}")
            found += [(path, other)] if other is not None else []
    return text


def at(path: str) -> Any:
    """What `rqretry` has there; None for nothing."""
    value: Any = rqretry
    for name in filter(None, path.split(".")):
        value = getattr(value, name, None)
    return None if value is rqretry else value


def explained() -> Iterator[tuple[str, Callable[..., Any]]]:
    with held() as objects:
        yield from callables(objects)


def required(call: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(call).parameters.values()
    return [one.name for one in parameters if one.default is one.empty]


def test_every_argument_of_every_call_is_explained() -> None:
    missing, count = [], 0
    for path, call in explained():
        text = words_of(path, call)
        plain = PLAIN if len(required(call)) == 1 else set()
        for name, parameter in inspect.signature(call).parameters.items():
            if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL) or name in plain:
                continue
            count += 1
            if not re.search(rf"\b{name}\b", text):
                missing.append((path, name))
    assert missing == []
    assert count > 200


def test_every_text_begins_with_a_sentence_and_names_nothing_internal() -> None:
    for path, call in explained():
        text = inspect.getdoc(call) or ""
        first = text.partition("\n\n")[0]
        assert re.match(r"[A-Zr`].*[.:]$", first, re.DOTALL), path
        assert not INTERNAL.findall(text + str(inspect.signature(call))), path


def test_every_exported_name_has_a_text_of_its_own() -> None:
    for name in vars(rqretry)["__all__"]:
        value = getattr(rqretry, name)
        if inspect.isclass(value):
            text = vars(value).get("__doc__") or ""
            assert text, name
            assert not text.startswith(f"{name}("), f"{name} has what a dataclass writes"
