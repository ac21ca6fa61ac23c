"""What was meant where a name is nearly right: of a command, an option, an argument."""

import functools
import inspect
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, ParamSpec, TypeVar, get_args

P = ParamSpec("P")
R = TypeVar("R")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question such as "; did you mean publish?", or nothing."""
    near = get_close_matches(name, known, 1)
    return f"; did you mean {near[0]}?" if near else ""


def hinted(function: Callable[P, R]) -> Callable[P, R]:
    """A function whose caller is told what was meant by an argument that it does not have."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            trace = error.__traceback__
            if trace is None or trace.tb_next is not None:  # it was called, and then raised that
                raise
            raise TypeError(_hint(str(error), function, kwargs)) from None

    return call


def _hint(reason: str, function: Callable[..., Any], given: Iterable[str]) -> str:
    known = _arguments(function)
    for name in given:
        if name in known or "Did you mean" in reason:
            continue
        hint = did_you_mean(name, known)
        for part in name.split("_"):  # redis_ulr
            hint = hint or did_you_mean(part, known)
        named = "" if repr(name) in reason else f": there is no {name!r}"
        return f"{reason}{named}{hint or '; there are ' + ', '.join(known)}"
    return reason


def _arguments(function: Callable[..., Any]) -> list[str]:
    """The names that can be given, those of a TypedDict of options too."""
    names: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            (options,) = get_args(parameter.annotation) or (object,)
            names += getattr(options, "__annotations__", ())
        elif parameter.name not in ("self", "cls"):
            names.append(parameter.name)
    return names
