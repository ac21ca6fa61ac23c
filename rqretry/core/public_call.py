"""Functions for users: a misspelt argument is answered, and a traceback ends at their line."""

import functools
import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar, cast, get_args

from rqretry.core.errors import InvalidArgument, RqretryError, end_at_caller
from rqretry.core.suggestion import did_you_mean

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_OURS = re.compile(r"^[\w.<>]+\(\) (got an )?")
"""The name of a function as Python has it, which may be one of ours."""


def hinted(function: Callable[P, R], bare: str = "") -> Callable[P, R]:
    """A function for users, plain or async.

    It tells them what was meant by an argument that it does not have, and the traceback of an
    error of ours ends at their line (docs/decisions/0083).

    Args:
        function: It.
        bare: What it answers where a function is among its arguments; "" for nothing.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            if bare and any(map(callable, args)):
                raise InvalidArgument(bare)
            return function(*args, **kwargs)
        except (RqretryError, TypeError) as error:
            for_caller(error, function, kwargs)
            raise

    @functools.wraps(function)
    async def call_async(*args: P.args, **kwargs: P.kwargs) -> Any:
        try:
            return await cast("Callable[P, Awaitable[Any]]", function)(*args, **kwargs)
        except (RqretryError, TypeError) as error:
            for_caller(error, function, kwargs)
            raise

    if inspect.iscoroutinefunction(function):
        return cast("Callable[P, R]", call_async)
    return call


def hinted_decorator(bare: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """`hinted`, for what makes a decorator; `bare`: what it answers without its parentheses."""
    return functools.partial(hinted, bare=bare)


def hinted_fields(kind: type[T]) -> type[T]:
    """A class whose fields are the arguments of users."""
    setattr(kind, "__init__", hinted(getattr(kind, "__init__")))  # noqa: B009, B010 - of any class
    return kind


def for_caller(
    error: RqretryError | TypeError, function: Callable[..., Any], given: Iterable[str]
) -> None:
    """Have an error, raised again where it was caught, end at the line that called `function`."""
    if isinstance(error, RqretryError):
        end_at_caller(error)
        if isinstance(error, InvalidArgument) and "did you mean" not in str(error):
            error.args = (f"{error}{_meant(str(error), function, given)}",)
    elif error.__traceback__ is not None and error.__traceback__.tb_next is None:
        error.args = (
            _hint(_OURS.sub("", str(error)), function, given),
        )  # its arguments were refused
        error.__traceback__ = None


def _hint(reason: str, function: Callable[..., Any], given: Iterable[str]) -> str:
    known = _arguments(function)
    if "positional argument" in reason and reason.endswith("given"):
        return f"{reason}: give the others by name, such as {_first_named(function, known)}="
    for name in given:
        if name in known or "Did you mean" in reason:
            continue
        named = "" if repr(name) in reason else f": there is no {name!r}"
        meant = _closest(name, known) or "; there are " + ", ".join(known)
        return f"{reason}{named}{meant}"
    return reason


def _first_named(function: Callable[..., Any], known: Sequence[str]) -> str:
    """The first argument that is given by name."""
    parameters = inspect.signature(function).parameters
    kinds = {name: parameter.kind for name, parameter in parameters.items()}
    keyword = inspect.Parameter.KEYWORD_ONLY
    return next((name for name in known if kinds.get(name, keyword) is keyword), "...")


def _meant(reason: str, function: Callable[..., Any], given: Iterable[str]) -> str:
    """What was meant by the option that a reason names, where a function has more than options."""
    known = _arguments(function)
    hints = (_closest(name, known) for name in given if name not in known and repr(name) in reason)
    return next(hints, "")


def _closest(name: str, known: Iterable[str]) -> str:
    meant = did_you_mean(name, known)
    for part in name.split("_"):  # redis_ulr
        meant = meant or did_you_mean(part, known)
    return meant


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
