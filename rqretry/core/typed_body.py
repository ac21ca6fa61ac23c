"""Typed bodies: what a body must look like, and values of such types as plain JSON.

Dataclasses, TypedDicts, msgspec Structs, pydantic models and everything built from them. The
checking is done by msgspec or pydantic, whichever knows the type; both are extras.
"""

import dataclasses
import types
import typing
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from typing import Any

from rqretry.core.errors import CodecError, ConfigError, InvalidArgument, show

PLAIN = frozenset({dict, list, tuple, str, int, float, bool, bytes, bytearray, type(None)})
"""Body types that need no conversion."""

_SCALARS = frozenset({str, int, float, bool, type(None)})
_CONTAINERS: tuple[Any, ...] = (dict, list, dict[str, Any], list[Any])
"""Types for which a look is enough, without a library's copy."""

_UNRESOLVED = (TypeError, NameError, SyntaxError)
"""What the libraries raise for a type that they do not know, and for one that names such a type."""

Fit = Callable[[Any], Any]
"""Turns a decoded body into the annotated type; raises BodyMismatch."""


class BodyMismatch(InvalidArgument):
    """Raised when a body is not what its topic, its handler or its task promises."""


class ReceivedMismatch(BodyMismatch):
    """The same for a message that a handler should have got; it is dead-lettered."""


def fitting(wanted: Any, what: str = "the body") -> Fit | None:
    """A function that makes a value fit a type; None where everything fits.

    Args:
        wanted: The type.
        what: What the value is, for errors.

    Raises:
        ConfigError: Nothing that is installed can check this type.
    """
    if wanted is Any or wanted is object:
        return None
    if isinstance(wanted, str | typing.ForwardRef):
        raise ConfigError(
            f"the type {show(wanted)} of {what} is a name, which is not looked up: give the type"
            " itself, without quotes"
        )
    msgspec, failed = _optional("msgspec"), ""
    if wanted in _CONTAINERS or (msgspec is None and _is_json(wanted)):
        return _by_hand(wanted, what)
    if msgspec is not None and not _is_pydantic(wanted):
        try:
            _check_type(msgspec, wanted)
        except _UNRESOLVED as error:
            failed = f": {error}"
        else:
            return _by_msgspec(msgspec, wanted, what)
    if _optional("pydantic") is not None:
        try:
            return _by_pydantic(wanted, what, whole=bool(failed))
        except _UNRESOLVED as error:
            failed = failed or f": {error}"
    if failed or _test(wanted) is None:
        advice = failed or ": install rqretry[typed], or pydantic"
        raise ConfigError(f"the type {show(_name(wanted))} of {what} cannot be checked{advice}")
    return _by_hand(wanted, what)


def plain(body: Any) -> Any:
    """A body as JSON values: what `publish` is given may be of a typed class.

    What is no such object comes back as it is, and the codec says what is wrong with it.

    Raises:
        CodecError: A field holds something that has no JSON form.
    """
    if type(body) in PLAIN:
        return body
    type_ = type(body)
    if (
        dataclasses.is_dataclass(type_)
        or hasattr(type_, "__struct_fields__")
        or _is_pydantic(type_)
    ):
        return packed(body)
    return body


def packed(value: Any) -> Any:
    """A value as JSON values, of which its type annotation can make the value again.

    Raises:
        CodecError: It has no JSON form.
    """
    if type(value) in _SCALARS:
        return value
    try:
        return _builtins(value)
    except (TypeError, ValueError) as error:
        raise CodecError(f"{show(value)} has no JSON form: {error}") from error


def _builtins(value: Any) -> Any:
    if hasattr(type(value), "model_dump"):
        return value.model_dump(mode="json")
    msgspec = _optional("msgspec")
    if msgspec is not None:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=_encode_model)
    pydantic = _optional("pydantic_core")
    if pydantic is not None:
        return pydantic.to_jsonable_python(value)
    return dataclasses.asdict(value) if dataclasses.is_dataclass(type(value)) else value


# -- checking ------------------------------------------------------------------------------------


def _by_msgspec(msgspec: Any, wanted: Any, what: str) -> Fit:
    convert, mismatch = msgspec.convert, msgspec.ValidationError

    def fit(value: Any) -> Any:
        try:
            return convert(value, wanted, str_keys=True, dec_hook=_decode_model)
        except (mismatch, ValueError) as error:  # a __post_init__ may refuse values too
            raise BodyMismatch(f"{what} is not a valid {_name(wanted)}: {error}") from error

    return fit


def _by_pydantic(wanted: Any, what: str, *, whole: bool) -> Fit:
    """`whole`: Not even the name of a type may be left open, as it may be in a model."""
    pydantic = import_module("pydantic")
    unfinished = pydantic.errors.PydanticUserError
    try:
        adapter = pydantic.TypeAdapter(wanted)
    except unfinished as error:
        raise TypeError(str(error).partition("\n")[0]) from error
    if whole and not getattr(adapter, "pydantic_complete", True):
        raise TypeError("it names a type that is not there")

    def fit(value: Any) -> Any:
        try:
            return adapter.validate_python(value)
        except unfinished as error:
            raise _unfinished(wanted, error) from error
        except pydantic.ValidationError as error:
            if type(value) in (bytes, bytearray):
                raise mismatch(error) from error
        try:  # a strict model takes text for a date from JSON alone
            return adapter.validate_json(import_module("pydantic_core").to_json(value))
        except pydantic.ValidationError as error:
            raise mismatch(error) from error

    def mismatch(error: Any) -> BodyMismatch:
        return BodyMismatch(f"{what} is not a valid {_name(wanted)}: {_first(error)}")

    return fit


def _by_hand(wanted: Any, what: str) -> Fit:
    test = _test(wanted)
    assert test is not None

    def fit(value: Any) -> Any:
        if not test(value):
            raise BodyMismatch(
                f"{what} is not a valid {_name(wanted)}: it is {type(value).__name__}"
            )
        return value

    return fit


def _is_json(wanted: Any) -> bool:
    """Every JSON value either is of this type or is not; there is nothing to convert."""
    return wanted not in (bytes, bytearray, tuple) and _test(wanted) is not None


def _test(wanted: Any) -> Callable[[Any], bool] | None:
    """A test for types that JSON values have by themselves; None for all others."""
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if wanted is Any or wanted is object:
        return lambda _: True
    if wanted is float:
        return lambda value: type(value) in (int, float)
    if wanted in PLAIN:
        return lambda value: type(value) is wanted
    if origin not in (typing.Union, types.UnionType, dict, list):
        return None
    tests = [_test(part) for part in arguments]
    known = [test for test in tests if test is not None]
    if len(known) < len(tests):
        return None
    if origin is list:
        return lambda value: type(value) is list and all(map(known[0], value))
    if origin is dict:
        return lambda value: (
            type(value) is dict
            and all(known[0](name) and known[1](item) for name, item in value.items())
        )
    return lambda value: any(test(value) for test in known)


# -- what msgspec knows, and what pydantic adds to it --------------------------------------------


def _check_type(msgspec: Any, wanted: Any) -> None:
    """Raise TypeError for a type that msgspec, with pydantic's help, cannot make of JSON values."""
    msgspec.json.schema(wanted, schema_hook=_schema_of_model)
    with suppress(msgspec.ValidationError, ValueError):
        msgspec.convert(None, wanted, str_keys=True, dec_hook=_decode_model)


def _schema_of_model(type_: Any) -> dict[str, Any]:
    """Of a class that is left to pydantic; what it takes is not needed here."""
    if not _is_pydantic(type_):
        raise TypeError(f"{_name(type_)} is not a dataclass, TypedDict, Struct or model")
    return {"type": "object"}


def _encode_model(value: Any) -> Any:
    if hasattr(type(value), "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"objects of type {_name(type(value))} are no JSON values")


def _decode_model(wanted: Any, value: Any) -> Any:
    pydantic = import_module("pydantic")
    try:
        return wanted.model_validate(value)
    except pydantic.errors.PydanticUserError as error:
        raise _unfinished(wanted, error) from error
    except pydantic.ValidationError as error:
        raise ValueError(_first(error)) from error


def _unfinished(wanted: Any, error: Exception) -> ConfigError:
    """A model may name classes that its module defines later; by now they must be there."""
    first = str(error).partition("\n")[0]
    return ConfigError(f"the type {_name(wanted)} of the body cannot be checked: {first}")


def _first(error: Any) -> str:
    """What pydantic found first, as msgspec would say it."""
    found = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, found["loc"]))
    return f"{found['msg']} - at {where}" if where else str(found["msg"])


def _is_pydantic(wanted: Any) -> bool:
    """A pydantic model or dataclass."""
    return isinstance(wanted, type) and hasattr(wanted, "__pydantic_validator__")


def _name(wanted: Any) -> str:
    return wanted.__name__ if isinstance(wanted, type) else str(wanted)


@lru_cache(maxsize=8)
def _optional(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        return None
