"""Typed bodies: what a body must look like, and values of such types as plain JSON.

Dataclasses, TypedDicts, msgspec Structs, pydantic models and everything built from them. The
checking is done by msgspec or pydantic, whichever knows the type; both are extras.
"""

import dataclasses
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any

from rqretry.errors import ConfigError, InvalidArgument, show

PLAIN = frozenset({dict, list, tuple, str, int, float, bool, bytes, bytearray, type(None)})
"""Body types that need no conversion."""

_SCALARS = frozenset({str, int, float, bool, type(None)})

Fit = Callable[[Any], Any]
"""Turns a decoded body into the annotated type; raises BodyMismatch."""


class BodyMismatch(InvalidArgument):
    """Raised when a body is not what the handler's annotation promises."""


@lru_cache(maxsize=1024)
def fitting(wanted: Any) -> Fit | None:
    """A function that makes a body fit a type; None where everything fits.

    Raises:
        ConfigError: Nothing that is installed can check this type.
    """
    if wanted is Any or wanted is object:
        return None
    if hasattr(wanted, "model_validate"):
        return _by_pydantic(wanted)
    msgspec = _optional("msgspec")
    if msgspec is not None:
        return _by_msgspec(msgspec, wanted)
    if _optional("pydantic") is not None:
        return _by_pydantic(wanted)
    if isinstance(wanted, type) and wanted in PLAIN:
        return _by_class(wanted)
    raise ConfigError(
        f"the body type {show(wanted)} cannot be checked: install rqretry[typed], or pydantic"
    )


def plain(body: Any) -> Any:
    """A body as JSON values: what `publish` is given may be of a typed class.

    What is no such object comes back as it is, and the codec says what is wrong with it.
    """
    if type(body) in PLAIN:
        return body
    if hasattr(body, "model_dump"):
        return body.model_dump(mode="json")
    msgspec = _optional("msgspec")
    if msgspec is not None and _is_structured(body):
        return msgspec.to_builtins(body)
    if dataclasses.is_dataclass(body) and not isinstance(body, type):
        return dataclasses.asdict(body)
    return body


def packed(value: Any) -> Any:
    """An argument of a task as JSON values; what a type annotation can turn back."""
    msgspec = _optional("msgspec")
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if msgspec is not None and type(value) not in _SCALARS:
        return msgspec.to_builtins(value)
    return plain(value)


def _by_msgspec(msgspec: Any, wanted: Any) -> Fit:
    try:
        msgspec.convert(None, wanted)
    except msgspec.ValidationError:
        pass
    except TypeError as error:
        raise ConfigError(f"the body type {show(wanted)} cannot be checked: {error}") from error

    def fit(body: Any) -> Any:
        try:
            return msgspec.convert(body, wanted)
        except msgspec.ValidationError as error:
            raise BodyMismatch(f"the body is no {_name(wanted)}: {error}") from error

    return fit


def _by_pydantic(wanted: Any) -> Fit:
    pydantic = import_module("pydantic")
    adapter = pydantic.TypeAdapter(wanted)

    def fit(body: Any) -> Any:
        try:
            return adapter.validate_python(body)
        except pydantic.ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"])) or "body"
            raise BodyMismatch(
                f"the body is no {_name(wanted)}: {first['msg']} - at {where}"
            ) from error

    return fit


def _by_class(wanted: type) -> Fit:
    def fit(body: Any) -> Any:
        if type(body) is not wanted:
            raise BodyMismatch(f"the body is no {wanted.__name__}: it is {type(body).__name__}")
        return body

    return fit


def _is_structured(body: Any) -> bool:
    return hasattr(type(body), "__struct_fields__") or (
        dataclasses.is_dataclass(body) and not isinstance(body, type)
    )


def _name(wanted: Any) -> str:
    return getattr(wanted, "__name__", None) or str(wanted)


@lru_cache(maxsize=8)
def _optional(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        return None
