"""When a failed message is retried: RocketMQ's levels, a ladder, exponential or fixed.

A policy is compiled to at most 32 waits, of which the last repeats, because scripts read it from
the group's configuration in each partition (decision 0010 in docs/decisions).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any, Literal, NoReturn

from rqretry.core.durations import Duration, compact, milliseconds, spell
from rqretry.core.errors import CodecError, InvalidArgument, refuse, show
from rqretry.core.limits import MAX_DELAY_S, UNLIMITED, check_max_retries
from rqretry.core.public_call import hinted

MAX_STEPS = 32
FIRST_RETRY_LEVEL = 3
ORDERED_INTERVALS_MS = (10, 30_000)
"""The least and the longest wait between the attempts of an ordered group."""
_MAX_MULTIPLIER = 1000.0
_EXPONENTIAL_NUMBERS = ("", "exponential multiplier", "", "exponential jitter")
"""What its parts are called in errors where they are numbers; "" for a duration."""
_DECIMAL = re.compile(r"[0-9]+(\.[0-9]+)?")
_FORMS = (
    'is not a policy: give "rocketmq", "ladder:10s 30s 1m", "fixed:1s" or "exponential:5s,2,2h,0.1"'
)

_STEPS = {"rocketmq": (0, 0), "ladder": (1, MAX_STEPS), "exponential": (2, 2), "fixed": (1, 1)}
"""How many `steps_ms` each has."""

Form = Literal["rocketmq", "ladder", "exponential", "fixed"]


@dataclass(frozen=True, slots=True)
class CompiledPolicy:
    """What the scripts read.

    Attributes:
        delays_ms: 1 to 32 waits in milliseconds: the k-th retry waits the k-th, and
            every later one the last.
        jitter: Each wait varies by up to this part of it, up or down; 0 to 1.
    """

    delays_ms: tuple[int, ...]
    jitter: float = 0.0

    def delay_ms(self, retry: int) -> int:
        """The wait before a retry, counted from 1, in milliseconds, without jitter."""
        return self.delays_ms[min(max(retry, 1), len(self.delays_ms)) - 1]

    def total_ms(self, retries: int) -> int:
        """All waits of that many retries together, in milliseconds, without jitter."""
        listed = self.delays_ms[:retries]
        return sum(listed) + (retries - len(listed)) * self.delays_ms[-1]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The waits between attempts; make one with the constructors below.

    `max_retries` is None if it is not named: the group keeps its own (16 at first).
    "unlimited" is kept as -1.
    """

    form: Form
    steps_ms: tuple[int, ...] = ()
    multiplier: float = 1.0
    jitter: float = 0.0
    max_retries: int | None = None

    def __post_init__(self) -> None:
        """Raises InvalidArgument: it was not made by one of the constructors."""
        least, most = _STEPS.get(self.form, (1, 0))
        if not least <= len(self.steps_ms) <= most:
            rule = 'is no policy: write RetryPolicy.ladder("10s 30s"), or .exponential() and so on'
            refuse("form", self.form, rule)

    @classmethod
    @hinted
    def rocketmq(cls, max_retries: int | str | None = None) -> "RetryPolicy":
        """RocketMQ's ladder: the k-th retry waits delay level 2 + k (10s 30s 1m ...).

        Args:
            max_retries: The group's limit; None leaves the group's own.
        """
        return cls("rocketmq", max_retries=_retries(max_retries))

    @classmethod
    @hinted
    def ladder(
        cls, steps: str | Sequence[Duration], max_retries: int | str | None = None
    ) -> "RetryPolicy":
        """The k-th retry waits the k-th step; the last one repeats.

        Args:
            steps: 1 to 32 durations, never shorter than the one before, such as
                "10s 30s 1m"; each 1 ms to 40 days.
            max_retries: The group's limit; None leaves the group's own.

        Raises:
            InvalidArgument: There are no steps or too many, one is not a duration or out of
                range, or they are not in order.
        """
        return cls("ladder", _check_steps(steps), max_retries=_retries(max_retries))

    @classmethod
    @hinted
    def fixed(cls, interval: Duration, max_retries: int | str | None = None) -> "RetryPolicy":
        """Every retry waits the same.

        Args:
            interval: The wait, 1 ms to 40 days, in seconds or as text such as "90s".
            max_retries: The group's limit; None leaves the group's own.

        Raises:
            InvalidArgument: One of them is out of range.
        """
        step = _step(interval, "fixed interval")
        return cls("fixed", (step,), max_retries=_retries(max_retries))

    @classmethod
    @hinted
    def exponential(
        cls,
        initial: Duration = 5,
        multiplier: float = 2,
        max: Duration = "2h",  # noqa: A002 - the name of the contract
        jitter: float = 0.1,
        max_retries: int | str | None = None,
    ) -> "RetryPolicy":
        """Each wait is the one before times `multiplier`, up to `max`; never overflows.

        Args:
            initial: The first wait, 1 ms to 40 days; default 5 s.
            multiplier: From 1 to 1000; default 2.
            max: The longest wait, `initial` to 40 days; default 2h.
            jitter: Each wait varies by up to this part of it, up or down; 0 to 1, default 0.1.
            max_retries: The group's limit; None leaves the group's own.

        Raises:
            InvalidArgument: One of them is out of range.
        """
        first = _step(initial, "exponential initial")
        cap = _step(max, "exponential max")
        if cap < first:
            rule = f"must not be shorter than the initial wait, {compact(first)}"
            refuse("exponential max", max, rule)
        factor = _number("exponential multiplier", multiplier, 1.0, _MAX_MULTIPLIER)
        share = _number("exponential jitter", jitter, 0.0, 1.0)
        return cls("exponential", (first, cap), factor, share, _retries(max_retries))

    @classmethod
    def parse(cls, text: str) -> "RetryPolicy":
        """Read a policy as the command line writes it, without its max_retries.

        Args:
            text: "rocketmq", "ladder:10s 30s 1m", "fixed:1s" or "exponential:5s,2,2h,0.1"; the
                later parts of an exponential one may be left out.

        Raises:
            InvalidArgument: It is none of these.
        """
        form, colon, rest = _check_text(text).strip().partition(":")
        if form == "ladder":
            return cls.ladder(rest)
        if form == "fixed":
            return cls.fixed(rest)
        if form == "exponential":
            return cls._parse_exponential(rest)
        if form != "rocketmq" or colon:
            refuse("policy", text, _FORMS)
        return cls.rocketmq()

    @classmethod
    def _parse_exponential(cls, rest: str) -> "RetryPolicy":
        parts = [part.strip() for part in rest.split(",")] if rest.strip() else []
        if len(parts) > len(_EXPONENTIAL_NUMBERS):
            refuse("policy", f"exponential:{rest}", _FORMS)
        given: list[Any] = [
            _read_number(name, part) if name else part
            for name, part in zip(_EXPONENTIAL_NUMBERS, parts, strict=False)
        ]
        return cls.exponential(*given)  # what is left out has the defaults there

    def __str__(self) -> str:
        """The text that `parse` reads back."""
        steps = [compact(step) for step in self.steps_ms]
        if self.form == "exponential":
            factor, share = _shortest(self.multiplier), _shortest(self.jitter)
            return f"exponential:{steps[0]},{factor},{steps[1]},{share}"
        return ":".join(filter(None, (self.form, " ".join(steps))))


def compiled(policy: RetryPolicy, levels_ms: Sequence[int]) -> CompiledPolicy:
    """The waits that scripts read; only `rocketmq` uses the level table."""
    if policy.form == "rocketmq":
        # A table too short for level 3 has only its last level to offer.
        first = min(FIRST_RETRY_LEVEL, len(levels_ms)) - 1
        return CompiledPolicy(tuple(levels_ms[first:][:MAX_STEPS]))
    if policy.form == "exponential":
        return CompiledPolicy(_exponential_ms(policy), policy.jitter)
    return CompiledPolicy(policy.steps_ms)


def _exponential_ms(policy: RetryPolicy) -> tuple[int, ...]:
    wait, cap = policy.steps_ms
    waits = [wait]
    exact = float(wait)
    while waits[-1] < cap and len(waits) < MAX_STEPS and policy.multiplier > 1:
        exact = min(exact * policy.multiplier, float(cap))
        waits.append(round(exact))
    return tuple(waits)


def describe(policy: RetryPolicy, max_retries: int, levels_ms: Sequence[int]) -> str:
    """Words for people: "16 retries = 17 deliveries over 4 h 45 m 40 s".

    Args:
        policy: It.
        max_retries: The limit that holds for the group; -1 is unlimited.
        levels_ms: The times of the namespace's delay levels.
    """
    waits = compiled(policy, levels_ms)
    if max_retries == UNLIMITED:
        in_the_end = "in the end " if len(waits.delays_ms) > 1 else ""
        last = spell(waits.delays_ms[-1] / 1000)
        return f"unlimited retries, {in_the_end}every {last}"
    if max_retries == 0:
        return "0 retries = 1 delivery"
    retries = "1 retry" if max_retries == 1 else f"{max_retries} retries"
    total = spell(waits.total_ms(max_retries) / 1000)
    return f"{retries} = {max_retries + 1} deliveries over {total}"


def check_ordered(policy: RetryPolicy) -> None:
    """Whether an ordered group can have it: fixed, 10 ms to 30 s. Raises InvalidArgument."""
    least, most = ORDERED_INTERVALS_MS
    if policy.form != "fixed" or not least <= policy.steps_ms[0] <= most:
        rule = (
            "is not for an ordered group, whose message groups wait while one of their"
            f" messages does: give a fixed one of {compact(least)} to {compact(most)},"
            ' such as "fixed:1s"'
        )
        refuse("policy", str(policy), rule)


def encoded(policy: RetryPolicy) -> dict[str, object]:
    """The policy as the catalog stores it, ready for JSON."""
    return {"policy": str(policy), "max_retries": policy.max_retries}


def decoded(stored: object) -> RetryPolicy:
    """Read what `encoded` wrote; raises CodecError if it is damaged or newer."""
    if not isinstance(stored, Mapping):
        _refuse_stored(stored)
    text, retries = stored.get("policy"), stored.get("max_retries")
    try:
        policy = RetryPolicy.parse(_check_text(text))
        limit = _retries("unlimited" if retries == UNLIMITED else retries)
    except InvalidArgument:
        _refuse_stored(stored)
    return RetryPolicy(policy.form, policy.steps_ms, policy.multiplier, policy.jitter, limit)


def _check_text(text: object) -> str:
    if not isinstance(text, str):
        refuse("policy", text, _FORMS)
    return text


def _check_steps(steps: object) -> tuple[int, ...]:
    parts = steps.split() if isinstance(steps, str) else steps
    if isinstance(parts, bytes | bytearray) or not isinstance(parts, Sequence):
        refuse("ladder", steps, 'must be text such as "10s 30s 1m", or a list')
    if not 1 <= len(parts) <= MAX_STEPS:
        refuse("ladder", steps, f"has {len(parts)} steps: it must have 1 to {MAX_STEPS}")
    waits = tuple(_step(part, f"ladder step {k}") for k, part in enumerate(parts, 1))
    for k, (before, after) in enumerate(pairwise(waits), start=2):
        if after < before:
            rule = f"must not be shorter than the step before it, {compact(before)}"
            refuse(f"ladder step {k}", compact(after), rule)
    return waits


def _step(value: Duration, name: str) -> int:
    return milliseconds(value, name=name, minimum=0.001, maximum=MAX_DELAY_S)


def _number(name: str, value: object, least: float, most: float) -> float:
    rule = f"must be a number from {least:g} to {most:g}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        refuse(name, value, rule)
    # Written so that NaN fails it too.
    if not least <= value <= most:
        refuse(name, value, rule)
    return float(value)


def _read_number(name: str, text: str) -> float:
    if not _DECIMAL.fullmatch(text):
        refuse(name, text, "must be a number such as 2 or 0.1")
    return float(text)


def _shortest(number: float) -> str:
    """A decimal without an exponent that reads back as the same number."""
    return f"{Decimal(repr(number)):f}".removesuffix(".0")


def _retries(max_retries: object) -> int | None:
    return None if max_retries is None else check_max_retries(max_retries)


def _refuse_stored(stored: object) -> NoReturn:
    message = (
        f"the stored retry policy {show(stored)} cannot be read: it is damaged, or a"
        " newer rqretry wrote it"
    )
    raise CodecError(message)


ORDERED_POLICY = RetryPolicy.fixed(1)
"""What an ordered group has until somebody names another one."""
