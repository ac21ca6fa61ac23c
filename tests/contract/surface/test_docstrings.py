"""`help` explains what programs call: each argument with its default and unit, and each error."""

import inspect
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, get_args, get_type_hints, is_typeddict

import pytest

import rqretry
from rqretry import RqretryError
from rqretry.contrib.django import publish_on_commit
from rqretry.contrib.sentry import capture_failures
from rqretry.testing import Lab
from tests.contract.surface.docstrings import arguments, errors
from tests.contract.surface.surface import callables, given, held

Explained = list[tuple[str, Callable[..., Any]]]
KEYWORD = inspect.Parameter.KEYWORD_ONLY
INTERNAL = re.compile(r"\b_\w+\b|AdminContext|\bOperation\b|SyncStore|ScriptLibrary")
UNIT = re.compile(r"\b(?:ms|s|min|h|days?|seconds|milliseconds)\b|\bDuration\b|_duration")
LEFT_OUT = re.compile(r"[Dd]efault|None|[Nn]ot given|[Ii]f (?:no|given)|[Ww]ithout|\binstead\b")
"""How a text says what an argument means that is left out."""


@pytest.fixture(scope="module")
def explained() -> Iterator[Explained]:
    with held() as objects, Lab() as lab:
        yield [
            *callables({**objects, "Lab": lab}),
            ("capture_failures", capture_failures),
            ("publish_on_commit", publish_on_commit),
        ]


def parameters(call: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    for one in inspect.signature(call).parameters.values():
        if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL):
            yield one


def lacking(parameter: inspect.Parameter, text: str) -> str:
    """What a text does not say of an argument."""
    default = parameter.default
    if not text:
        return "no text"
    if default is None and not LEFT_OUT.search(text):
        return "does not say what leaving it out means"
    written = f"{default:g}" if isinstance(default, float) else str(default)
    spelled = type(default) in (int, float, str) and default not in (0, "")
    if spelled and not ("efault" in text and written in text):
        return f"does not name its default, {written}"
    if timedelta in get_args(parameter.annotation) and not UNIT.search(text):
        return "has no unit"
    return ""


def test_every_argument_of_every_call_is_explained_with_its_default_and_unit(
    explained: Explained,
) -> None:
    missing, count = [], 0
    for path, call in explained:
        texts = arguments(path, call)
        for parameter in parameters(call):
            count += 1
            if reason := lacking(parameter, texts.get(parameter.name, "")):
                missing.append(f"{path}({parameter.name}) {reason}")
    assert missing == [], "\n".join(missing)
    assert count > 200


def test_what_a_call_raises_where_nothing_is_there_is_in_its_text(explained: Explained) -> None:
    unsaid, count = [], 0
    for path, call in explained:
        if path.partition(".")[0] not in ("Admin", "Client", "SimpleConsumer", "Topic", "Task"):
            continue
        if inspect.iscoroutinefunction(call) or path.endswith((".close", ".consumer")):
            continue
        positional, by_name = given(call, {})
        try:
            made = call(*positional, **by_name)
            if inspect.iscoroutine(made):
                made.close()
        except (RqretryError, AssertionError) as error:
            count += 1
            if type(error).__name__ not in errors(path, call):
                unsaid.append(f"{path}: {error!r}")
    assert unsaid == [], "\n".join(unsaid)
    assert count > 20


def test_every_text_begins_with_a_sentence_and_names_nothing_internal(explained: Explained) -> None:
    for path, call in explained:
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


def test_every_option_is_explained_with_its_default_and_unit() -> None:
    kinds = [getattr(rqretry, name) for name in vars(rqretry)["__all__"]]
    texts = {kind: arguments(kind.__name__, kind) for kind in kinds if is_typeddict(kind)}
    inherited = {option: text for own in texts.values() for option, text in own.items()}
    missing = []
    for kind, own in texts.items():
        for option, hint in get_type_hints(kind).items():
            asked = inspect.Parameter(option, KEYWORD, default=None, annotation=hint)
            if reason := lacking(asked, {**inherited, **own}.get(option, "")):
                missing.append(f"{kind.__name__}[{option}] {reason}")
    assert missing == [], "\n".join(missing)
    assert len(texts) > 6
