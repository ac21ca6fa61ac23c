"""How a handler or a task is called: which parameter gets what, checked and converted."""

import collections.abc
import functools
import inspect
import operator
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from rqretry.core.errors import ConfigError, InvalidArgument, show
from rqretry.core.message import Message
from rqretry.core.typed_body import BodyMismatch, Fit, ReceivedMismatch, fitting, packed

Handler = Callable[..., Any]
_EMPTY = inspect.Parameter.empty
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_POSITIONAL_ONLY = inspect.Parameter.POSITIONAL_ONLY
_VAR_POSITIONAL = inspect.Parameter.VAR_POSITIONAL
_VAR_KEYWORD = inspect.Parameter.VAR_KEYWORD
_LISTS = (list, collections.abc.Sequence, collections.abc.Collection, collections.abc.Iterable)
"""How the parameter of a batch handler may be annotated."""
_KNOWN = {"Message": Message, "Any": Any}
"""Names that modules often import for the type checker alone."""


@dataclass(frozen=True, slots=True)
class Binding:
    """The arguments of one handler.

    Attributes:
        takes: One character per positional parameter: "m" the message, "b" its body.
        fit: Checks and converts the body; None where every body will do.
    """

    takes: str
    fit: Fit | None

    @property
    def simple(self) -> bool:
        """Whether the handler takes the message as it is, and nothing else."""
        return self.takes == "m" and self.fit is None

    def arguments(self, message: Message[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments for one message. Raises ReceivedMismatch."""
        if self.fit is not None:
            try:
                message._checked_body(self.fit)  # noqa: SLF001 - for consumers only
            except BodyMismatch as error:
                raise ReceivedMismatch(str(error)) from error
        return tuple(message if role == "m" else message.body for role in self.takes), {}


@dataclass(frozen=True, slots=True)
class BatchBinding:
    """The arguments of a batch handler: its messages, as one list.

    Attributes:
        fit: Checks and converts each body; None where every body will do.
    """

    fit: Fit | None

    @property
    def simple(self) -> bool:
        """Never: what is called is a batch, and the handler takes a list."""
        return False

    def arguments(self, batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments for one batch, whose bodies fit."""
        return (batch.messages,), {}


def bind_batch(handler: Handler, body_type: Any = None) -> BatchBinding:
    """Read the signature of a batch handler once. Raises ConfigError: it takes no list of messages.

    Args:
        handler: The function.
        body_type: The body type of its topic, for what the signature leaves open.
    """
    parameters = [
        parameter
        for parameter in inspect.signature(handler).parameters.values()
        if parameter.kind in (*_POSITIONAL, _VAR_POSITIONAL)
    ]
    needed = [p for p in parameters if p.default is _EMPTY and p.kind is not _VAR_POSITIONAL]
    first = annotation_of(handler, parameters[0]) if parameters else None
    if len(needed) > 1 or first is None or (wanted := _of_list(first)) is None:
        raise ConfigError(
            f"handler {show(handler)} with batch= is called with a list of messages: annotate its"
            " one parameter with list[Message[T]], or remove batch="
        )
    body = body_type if wanted is Any else wanted
    return BatchBinding(None if body is None else fitting(body))


def _of_list(annotation: Any) -> Any:
    """T of a list[Message[T]]; Any where it is open; None: it is no list of messages."""
    if annotation in (Any, list):
        return Any
    if get_origin(annotation) not in _LISTS:
        return None
    role, body = _role(get_args(annotation)[0])
    return None if role != "m" else Any if body is None else body


def _takes_batch(annotation: Any) -> bool:
    """Whether this is a list of messages, and not a body that is a list."""
    of = get_args(annotation)[:1] if get_origin(annotation) in _LISTS else ()
    return bool(of) and (of[0] is Message or get_origin(of[0]) is Message)


def bind(handler: Handler, body_type: Any = None) -> Binding:
    """Read a handler's signature once.

    The first parameter without an annotation, or one annotated `Message`, gets the message;
    `Message[T]` checks the body against T; a parameter with any other annotation gets the checked
    body. Parameters with a default are the function's own business.

    Args:
        handler: The function.
        body_type: The body type of its topic, for what the signature leaves open.

    Raises:
        ConfigError: The function cannot be called with one message, or an annotation means nothing.
    """
    try:
        signature = inspect.signature(handler)
    except ValueError:  # a builtin without a signature
        return Binding("m", None if body_type is None else fitting(body_type))
    takes, wanted = "", []
    for parameter in signature.parameters.values():
        if parameter.kind not in _POSITIONAL or (takes and parameter.default is not _EMPTY):
            continue
        annotation = annotation_of(handler, parameter)
        if _takes_batch(annotation):
            raise ConfigError(
                f"handler {show(handler)} takes a list of messages: give its consumer batch=, such"
                " as batch=100, or annotate the parameter with Message[T]"
            )
        role, body = _role(annotation)
        if role == "b" and parameter.default is not _EMPTY:
            continue
        takes += role
        if body is not None:
            wanted.append(body)
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    if not takes and _VAR_POSITIONAL in kinds:  # a wrapper that hands on whatever it gets
        takes = "m"
    _check(handler, signature, takes, wanted)
    chosen = wanted[0] if wanted else body_type
    return Binding(takes, None if chosen is None else fitting(chosen))


def annotation_of(handler: Handler, parameter: inspect.Parameter) -> Any:
    """A parameter's annotation, resolved; Any without one.

    Raises:
        ConfigError: It names something that its module does not have.
    """
    if parameter.annotation is _EMPTY:
        return Any
    holder = types.SimpleNamespace(__annotations__={"it": parameter.annotation})
    scope = {**_KNOWN, **getattr(_function_under(handler), "__globals__", {})}
    try:
        return typing.get_type_hints(holder, globalns=scope, include_extras=True)["it"]
    except Exception as error:
        raise ConfigError(
            f"parameter {parameter.name} of {show(handler)}: its annotation"
            f" {show(parameter.annotation)} cannot be resolved ({error}): it must be a type that"
            " the function's module has when it runs"
        ) from error


def _role(annotation: Any) -> tuple[str, Any]:
    if annotation in (Any, Message):
        return "m", None
    if get_origin(annotation) is Message:
        (wanted,) = get_args(annotation)
        open_ = wanted is Any or isinstance(wanted, typing.TypeVar)
        return "m", None if open_ else wanted
    return "b", annotation


def _check(handler: Handler, signature: inspect.Signature, takes: str, wanted: list[Any]) -> None:
    try:
        signature.bind(*takes)
        fits = bool(takes) and takes.count("m") <= 1 and takes.count("b") <= 1
    except TypeError:
        fits = False
    if not fits or any(body != wanted[0] for body in wanted):
        raise ConfigError(
            f"handler {show(handler)} with signature {show(str(signature))} cannot be called with"
            " one message: it takes the message, its body (annotated with the body's type), or"
            " both, and nothing else without a default"
        )


def _function_under(handler: Any) -> Any:
    while isinstance(handler, functools.partial):
        handler = handler.func
    handler = inspect.unwrap(handler)
    return handler if hasattr(handler, "__globals__") else getattr(handler, "__call__", handler)  # noqa: B004


@dataclass(frozen=True, slots=True)
class TaskBinding:
    """How a task's arguments become a body, and a body its arguments.

    Attributes:
        signature: Of the function.
        fits: By parameter; one that takes everything is not here, and takes JSON values.
    """

    signature: inspect.Signature
    fits: Mapping[str, Fit]

    @property
    def simple(self) -> bool:
        """Never: the message itself is not an argument."""
        return False

    def body(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The body of a call; by name where that can be, so that parameters may change places.

        Raises:
            InvalidArgument: The function cannot be called like that.
            BodyMismatch: An argument is not what its annotation promises.
            CodecError: An argument has no JSON form.
        """
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidArgument(
                f"task {show(name)} cannot be called like that: {error}; its parameters are"
                f" {show(str(self.signature))}"
            ) from error
        self._convert(bound, _stored)
        if any(p.kind in (_POSITIONAL_ONLY, _VAR_POSITIONAL) for p in self._given(bound)):
            stored = {"args": list(bound.args), "kwargs": bound.kwargs}
        else:
            named = dict(bound.arguments)
            for parameter in self._given(bound):
                if parameter.kind is _VAR_KEYWORD:
                    named |= named.pop(parameter.name)
            stored = {"kwargs": named}
        return {part: values for part, values in stored.items() if values}

    def arguments(self, message: Message[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of the call. Raises ReceivedMismatch."""
        body = message.body
        args, kwargs = _parts(body)
        if not isinstance(args, list | tuple) or not isinstance(kwargs, dict):
            raise ReceivedMismatch("the body is not a call of a task: it needs args and kwargs")
        try:
            bound = self.signature.bind(*args, **kwargs)
            self._convert(bound, operator.call)
        except TypeError as error:
            raise ReceivedMismatch(f"the task does not take these arguments: {error}") from error
        except BodyMismatch as error:
            raise ReceivedMismatch(str(error)) from error
        return bound.args, bound.kwargs

    def _given(self, bound: inspect.BoundArguments) -> list[inspect.Parameter]:
        return [self.signature.parameters[name] for name in bound.arguments]

    def _convert(self, bound: inspect.BoundArguments, change: Callable[[Fit, Any], Any]) -> None:
        for parameter in self._given(bound):
            name = parameter.name
            fit, value = self.fits.get(name), bound.arguments[name]
            if fit is None:
                continue
            if parameter.kind is _VAR_POSITIONAL:
                bound.arguments[name] = tuple(change(fit, item) for item in value)
            elif parameter.kind is _VAR_KEYWORD:
                bound.arguments[name] = {key: change(fit, item) for key, item in value.items()}
            else:
                bound.arguments[name] = change(fit, value)


def bind_task(function: Callable[..., Any]) -> TaskBinding:
    """Read a task's signature once. Raises ConfigError if an annotation cannot be checked."""
    signature = inspect.signature(function)
    fits = {}
    for name, parameter in signature.parameters.items():
        fit = fitting(annotation_of(function, parameter), f"argument {name}")
        if fit is not None:
            fits[name] = fit
    return TaskBinding(signature, fits)


def address(handler: Callable[..., Any]) -> tuple[str, str]:
    """Module and name under which another process finds a function. Raises ConfigError."""
    module = getattr(handler, "__module__", "")
    name = getattr(handler, "__qualname__", "")
    if not module or not name or "<" in name or inspect.ismethod(handler):
        raise ConfigError(
            f"handler {show(handler)} cannot run with process=True: it must be a function at the"
            " top of a module"
        )
    return module, name


def _parts(body: Any) -> tuple[Any, Any]:
    if not isinstance(body, dict) or not body.keys() <= {"args", "kwargs"}:
        return None, None
    return body.get("args", ()), body.get("kwargs", {})


def _stored(fit: Fit, value: Any) -> Any:
    """An argument as the body holds it; the worker will be able to read it."""
    made = packed(value)
    fit(made)
    return made
