"""How a handler is called: which parameter gets the message, and which its checked body."""

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from rqretry.errors import ConfigError, show
from rqretry.message import Message
from rqretry.typed import Fit, fitting

Handler = Callable[..., Any]
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True)
class Binding:
    """The arguments of one handler.

    Attributes:
        takes: A letter per positional parameter: "m" the message, "b" its body.
        fit: Checks and converts the body; None where every body will do.
    """

    takes: str
    fit: Fit | None

    @property
    def simple(self) -> bool:
        """Whether the handler takes the message as it is, and nothing else."""
        return self.takes == "m" and self.fit is None

    def arguments(self, message: Message[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments for one message. Raises BodyMismatch."""
        if self.fit is not None:
            message.body = self.fit(message.body)
        return tuple(message if letter == "m" else message.body for letter in self.takes), {}


def bind(handler: Handler, body_type: Any = None) -> Binding:
    """Read a handler's signature once.

    One parameter without an annotation, or annotated `Message`, gets the message; `Message[T]`
    checks the body against T; a parameter with any other annotation gets the checked body.

    Args:
        handler: The function.
        body_type: The body type of its topic, for what the signature leaves open.

    Raises:
        ConfigError: The function cannot be called with one message.
    """
    try:
        signature = inspect.signature(handler)
    except ValueError:  # a builtin without a signature
        return Binding("m", None if body_type is None else fitting(body_type))
    hints = _hints(handler)
    takes, types = "", []
    for parameter in signature.parameters.values():
        if parameter.kind not in _POSITIONAL:
            continue
        letter, wanted = _role(hints.get(parameter.name, Any))
        if letter == "b" and parameter.default is not inspect.Parameter.empty:
            continue  # an option of the function's own
        takes += letter
        if wanted is not None:
            types.append(wanted)
    _check(handler, signature, takes, types)
    chosen = types[0] if types else body_type
    return Binding(takes, None if chosen is None else fitting(chosen))


def _role(annotation: Any) -> tuple[str, Any]:
    if annotation in (Any, Message):
        return "m", None
    if get_origin(annotation) is Message:
        (wanted,) = get_args(annotation)
        return "m", None if isinstance(wanted, typing.TypeVar) else wanted
    return "b", annotation


def _check(handler: Handler, signature: inspect.Signature, takes: str, types: list[Any]) -> None:
    try:
        signature.bind(*takes)
        fits = bool(takes) and takes.count("m") <= 1 and takes.count("b") <= 1
    except TypeError:
        fits = False
    if not fits or len({str(wanted) for wanted in types}) > 1:
        raise ConfigError(
            f"handler {show(handler)} with signature {show(str(signature))} cannot be called with"
            " one message: it takes the message, its body (annotated with the body's type), or"
            " both, and nothing else without a default"
        )


def _hints(handler: Handler) -> dict[str, Any]:
    target = handler if inspect.isroutine(handler) else getattr(handler, "__call__", handler)  # noqa: B004
    try:
        return typing.get_type_hints(inspect.unwrap(target))
    except Exception:  # noqa: BLE001 - an annotation that cannot be resolved says nothing
        return {}
