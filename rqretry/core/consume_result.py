"""What a handler can answer, and how its return value is read.

A handler answers with a `ConsumeResult`, or raises a `HandlerSignal` from anywhere below
it. Signals are control flow, not errors, so they are not under `RqretryError`: a handler
that catches `RqretryError` does not swallow them.

False is a failed attempt. What None means depends on the return annotation of the handler, which
is read once, when the handler is registered; `classify_return` then runs for every message. What a
task returns means nothing.
"""

import collections.abc
import functools
import re
import types
import typing
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar, Final

from rqretry.core.durations import Duration, compact, milliseconds
from rqretry.core.errors import refuse, show
from rqretry.core.limits import MAX_DELAY_S
from rqretry.core.public_call import hinted

AUTOMATIC_LEVEL = 0
DEAD_LETTER_LEVEL = -1
NONE_REASON = "handler returned None where it promised a result"
FALSE_REASON = "handler returned False"
UNAWAITED_REASON = (
    "handler returned {} that nobody ran: declare it 'async def' and await inside, and do not yield"
)
_LONGEST_REASON = 1000


class Outcome(IntEnum):
    """The four ways an attempt can end."""

    SUCCESS = 0
    FAILURE = 1
    POSTPONE = 2
    DEAD_LETTER = 3


@dataclass(frozen=True, slots=True)
class ConsumeResult:
    """The answer of a handler; make one with the names and constructors below.

    Attributes:
        outcome: How the attempt ended.
        reason: Why, in words, for people; None when not said.
        delay_ms: The wait asked for, in milliseconds; None for the policy's.
        level: The delay level asked for; 0 is automatic.
    """

    SUCCESS: ClassVar["ConsumeResult"]
    FAILURE: ClassVar["ConsumeResult"]

    outcome: Outcome
    reason: str | None = None
    delay_ms: int | None = None
    level: int = AUTOMATIC_LEVEL

    @classmethod
    @hinted
    def failure(cls, reason: str | None = None) -> "ConsumeResult":
        """The attempt failed; the message is retried by the group's policy.

        Args:
            reason: Why, in words; default none.
        """
        return cls(Outcome.FAILURE, _clean(reason))

    @classmethod
    @hinted
    def retry(
        cls,
        after: Duration | None = None,
        level: int | None = None,
        reason: str | None = None,
    ) -> "ConsumeResult":
        """The attempt failed; the message is retried at a time of the handler's choice.

        Args:
            after: The wait, 0 to 40 days, in seconds or as text; default the policy's.
            level: A delay level instead of a wait: 0 automatic, k > 0 that level (above
                the table its last), -1 the dead-letter queue now.
            reason: Why, in words; default none.

        Raises:
            InvalidArgument: Both or an impossible `after` or `level` are given.
        """
        if after is not None and level is not None:
            refuse("level", level, f"cannot be given with after={show(after)}: drop one")
        if after is not None:
            return cls(Outcome.FAILURE, _clean(reason), _delay("after", after))
        checked = _check_level(AUTOMATIC_LEVEL if level is None else level)
        if checked == DEAD_LETTER_LEVEL:
            return cls(Outcome.DEAD_LETTER, _clean(reason))
        return cls(Outcome.FAILURE, _clean(reason), None, checked)

    @classmethod
    @hinted
    def postpone(cls, after: Duration, reason: str | None = None) -> "ConsumeResult":
        """Not now: the message waits, and no attempt is counted.

        Args:
            after: The wait, 0 to 40 days, in seconds or as text such as "90s".
            reason: Why, in words; default none.

        Raises:
            InvalidArgument: `after` is no duration, or too long.
        """
        return cls(Outcome.POSTPONE, _clean(reason), _delay("after", after))

    @classmethod
    @hinted
    def dead_letter(cls, reason: str | None = None) -> "ConsumeResult":
        """No retry can help: the message goes to the dead-letter queue now.

        Args:
            reason: Why, in words; default none.
        """
        return cls(Outcome.DEAD_LETTER, _clean(reason))

    def __repr__(self) -> str:
        parts = []
        if self.delay_ms is not None:
            parts.append(f"after {compact(self.delay_ms)}")
        if self.level != AUTOMATIC_LEVEL:
            parts.append(f"level {self.level}")
        if self.reason is not None:
            parts.append(show(self.reason))
        return f"<ConsumeResult {' '.join([self.outcome.name, *parts])}>"


ConsumeResult.SUCCESS = ConsumeResult(Outcome.SUCCESS)
ConsumeResult.FAILURE = ConsumeResult(Outcome.FAILURE)


class HandlerSignal(Exception):
    """The base of what a handler may raise instead of returning a result."""

    result: ConsumeResult = ConsumeResult.FAILURE

    def __str__(self) -> str:
        return self.result.reason or repr(self.result)


class Retry(HandlerSignal):
    """Raise it to fail the attempt and choose the wait; see `ConsumeResult.retry`."""

    @hinted
    def __init__(
        self,
        after: Duration | None = None,
        level: int | None = None,
        reason: str | None = None,
    ) -> None:
        super().__init__(after, level, reason)
        self.result = ConsumeResult.retry(after, level, reason)


class Postpone(HandlerSignal):
    """Raise it to have the message again later, uncounted; see `ConsumeResult.postpone`."""

    @hinted
    def __init__(self, after: Duration, reason: str | None = None) -> None:
        super().__init__(after, reason)
        self.result = ConsumeResult.postpone(after, reason)


class DeadLetter(HandlerSignal):
    """Raise it to send the message to the dead-letter queue; see `ConsumeResult.dead_letter`."""

    @hinted
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.result = ConsumeResult.dead_letter(reason)


def signal_of(result: ConsumeResult) -> HandlerSignal:
    """A signal that means this result: raised again for a handler in another process."""
    signal = HandlerSignal()
    signal.result = result
    return signal


def classify_return(value: object, *, none_is_success: bool) -> ConsumeResult:
    """The result that a handler's return value stands for.

    Args:
        value: What the handler returned, awaited.
        none_is_success: None is a success, by annotation or by `none_is`.
    """
    if type(value) is ConsumeResult:
        return value
    if value is None:
        return ConsumeResult.SUCCESS if none_is_success else _NONE_FAILURE
    if value is False:
        return _FALSE_FAILURE
    return classify_task_return(value)


def classify_task_return(value: object) -> ConsumeResult:
    """The result of a task that returned: a success, whatever the value, if its body ran."""
    # The body of a coroutine that nobody awaited never ran: a success would lose the message.
    if isinstance(value, _UNRUN) or hasattr(value, "__await__"):
        return ConsumeResult.failure(UNAWAITED_REASON.format(type(value).__name__))
    return ConsumeResult.SUCCESS


class _Missing:
    """The type of MISSING."""

    def __repr__(self) -> str:
        return "<no annotation>"


MISSING: Final = _Missing()
_NONE_FAILURE = ConsumeResult(Outcome.FAILURE, NONE_REASON)
_FALSE_FAILURE = ConsumeResult(Outcome.FAILURE, FALSE_REASON)
_UNRUN = (Generator, AsyncGenerator)


def return_annotation(handler: Callable[..., object]) -> object:
    """The return annotation of a handler, resolved; MISSING without one; never raises.

    Text that cannot be resolved (a name that exists only inside a function) is returned
    as it is; what it says of None can still be asked.
    """
    function = _function_under(handler)
    written = getattr(function, "__annotations__", None)
    if not isinstance(written, dict) or "return" not in written:
        return MISSING
    # Only the return part is resolved: a parameter annotated with a name that cannot be
    # resolved must not hide what the handler promised.
    alone = types.SimpleNamespace(__annotations__={"return": written["return"]})
    scope = getattr(typing.cast("Any", function), "__globals__", {})
    try:
        return _unwrapped(typing.get_type_hints(alone, globalns=scope)["return"])
    except Exception:  # noqa: BLE001 - any name in an annotation may fail to evaluate
        return written["return"]


def none_means_success(annotation: object) -> bool:
    """Whether None is a success for a handler with this return annotation."""
    names = _names(annotation)
    if "ConsumeResult" in names:
        return False
    return not names.isdisjoint(_NONE_NAMES)


_NONE_NAMES = frozenset({"None", "NoneType", "Optional", "Any", "object"})


def _names(annotation: object) -> frozenset[str]:
    """The names an annotation offers at its top level; "None" when there is none."""
    if annotation is MISSING or annotation is None:
        return frozenset({"None"})
    if isinstance(annotation, str):
        return frozenset(re.findall(r"\w+", re.sub(r"\bAwaitable\b", "", annotation)))
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return frozenset().union(*map(_names, typing.get_args(annotation)))
    if isinstance(annotation, type) and issubclass(annotation, ConsumeResult):
        return frozenset({"ConsumeResult"})
    return frozenset({getattr(annotation, "__name__", repr(annotation))})


def _unwrapped(annotation: object) -> object:
    """X for Awaitable[X], and the value of a `type` alias."""
    annotation = getattr(annotation, "__value__", annotation)
    origin = typing.get_origin(annotation)
    if origin in (collections.abc.Awaitable, collections.abc.Coroutine):
        return typing.get_args(annotation)[-1]
    return annotation


def _function_under(handler: Callable[..., object]) -> object:
    while isinstance(handler, functools.partial):
        handler = handler.func
    if isinstance(handler, type) or hasattr(handler, "__annotations__"):
        return handler
    return getattr(type(handler), "__call__", handler)  # noqa: B004 - the method itself


def _delay(name: str, value: Duration) -> int:
    return milliseconds(value, name=name, maximum=MAX_DELAY_S)


def _check_level(level: object) -> int:
    if isinstance(level, bool) or not isinstance(level, int) or level < -1:
        rule = "must be 0 (automatic), a level from 1, or -1 (dead-letter now)"
        refuse("level", level, rule)
    return level


def _clean(reason: object) -> str | None:
    """Text that can always be stored: a bad reason must not stop the settle."""
    if reason is None:
        return None
    text = reason[:_LONGEST_REASON] if isinstance(reason, str) else show(reason)
    return text.encode("utf-8", "backslashreplace").decode()
