"""What `@app.transaction_checker` registers: functions that know how a transaction ended.

A transaction whose producer has not decided it, because it died or lost its connection, is checked
back: a checker of its producer group is asked.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, NamedTuple, TypedDict

from rqretry.core.durations import Duration, milliseconds
from rqretry.core.errors import ConfigError, show
from rqretry.core.limits import check_count, check_function, check_group, check_options
from rqretry.protocol.transaction import Record, Terms

CHECK_AFTER_S = 6
CHECK_EVERY_S = 30
MAX_CHECKS = 15
TIMEOUT_S = 30
MOST_SHOWN = 100
"""Messages that a checker is shown."""
_LEAST_S, _MOST_S = 0.01, 86_400
_MOST_CHECKS = 1_000_000


class TransactionResolution(Enum):
    """What a checker answers."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"
    """Ask again later; after the last check the transaction is parked for an operator."""


class TransactionOptions(TypedDict, total=False):
    """When an undecided transaction is checked back.

    Attributes:
        check_after: The first check, counted from its first message; default 6 s.
        check_every: Every later check after the one before; default 30 s.
        max_checks: How often at most, default 15; then the transaction is parked.
    """

    check_after: Duration
    check_every: Duration
    max_checks: int


class TransactionCheckerOptions(TransactionOptions, total=False):
    """The options of `@app.transaction_checker`.

    Attributes:
        timeout: How long the checker may take, 30 s by default; one that takes longer counts as
            UNKNOWN.
    """

    timeout: Duration


@dataclass(frozen=True, slots=True)
class HalfMessage:
    """One message of an undecided transaction."""

    id: str
    topic: str
    body: Any
    tag: str | None
    keys: tuple[str, ...]
    headers: Mapping[str, str]
    message_group: str | None


@dataclass(frozen=True, slots=True)
class TransactionCheck:
    """What a checker gets to see of a transaction.

    Attributes:
        id: The transaction, as `tx.id` was when it was begun.
        topic: The topic it was begun for.
        producer_group: Its producer group.
        opened_at: When its first message was stored, server time.
        opened_by: The process that began it.
        check: Which check this is, from 1.
        max_checks: After how many it is parked.
        messages: Its messages, in no promised order over partitions; the first 100.
    """

    id: str
    topic: str
    producer_group: str
    opened_at: datetime
    opened_by: str
    check: int
    max_checks: int
    messages: tuple[HalfMessage, ...] = ()


def check_of(record: Record, messages: tuple[HalfMessage, ...]) -> TransactionCheck:
    """What a checker gets of a transaction."""
    return TransactionCheck(
        record.id,
        record.terms.topic,
        record.terms.group,
        datetime.fromtimestamp(record.opened_ms / 1000, UTC),
        record.opened_by,
        record.checks,
        record.terms.most,
        messages,
    )


class CheckerSpec(NamedTuple):
    """One registered checker."""

    function: Callable[..., Any]
    group: str
    options: TransactionOptions
    timeout_s: float
    every_s: float
    """How often a worker looks for transactions to check, at least."""

    @property
    def name(self) -> str:
        """The function's qualified name."""
        return getattr(self.function, "__qualname__", repr(self.function))


class Checkers:
    """The transaction checkers of an app, by producer group."""

    def __init__(self) -> None:
        self.specs: dict[str, CheckerSpec] = {}

    def add(
        self, function: Callable[..., Any], group: str, options: TransactionCheckerOptions
    ) -> CheckerSpec:
        """Check and keep a checker. Raises InvalidArgument, ConfigError."""
        check_function("transaction checker", function, "transaction")
        check_options(options, TransactionCheckerOptions, "transaction_checker option")
        checked = check_group(group)
        if checked in self.specs:
            raise ConfigError(
                f"two transaction checkers for producer group {show(group)}:"
                f" {self.specs[checked].name} and {show(function)}; keep one"
            )
        when: Any = {name: value for name, value in options.items() if name != "timeout"}
        terms = terms_of(checked, checked, when)
        timeout = milliseconds(
            options.get("timeout", TIMEOUT_S), name="timeout", minimum=_LEAST_S, maximum=_MOST_S
        )
        often = min(terms.after_ms, terms.every_ms) / 1000
        spec = CheckerSpec(function, checked, when, timeout / 1000, often)
        self.specs[checked] = spec
        return spec

    def terms(self, topic: str, group: str | None, options: TransactionOptions) -> Terms:
        """The terms of a new transaction: what is named, else what the group's checker names."""
        name = topic if group is None else check_group(group)
        spec = self.specs.get(name)
        return terms_of(topic, name, {**spec.options, **options} if spec else options)


def terms_of(topic: str, group: str, options: TransactionOptions) -> Terms:
    """Whose a transaction is and when it is checked; all checked. Raises InvalidArgument."""

    def ms(name: str, default: float) -> int:
        given: Any = options.get(name, default)
        return milliseconds(given, name=name, minimum=_LEAST_S, maximum=_MOST_S)

    check_options(options, TransactionOptions, "transaction option")
    most = check_count(
        options.get("max_checks", MAX_CHECKS), name="max_checks", maximum=_MOST_CHECKS
    )
    after, every = ms("check_after", CHECK_AFTER_S), ms("check_every", CHECK_EVERY_S)
    return Terms(check_group(group), topic, after, every, most)
