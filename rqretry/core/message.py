"""Messages: what is published, what a handler or a simple consumer receives, and its receipt."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar

from rqretry.core.durability import check_durability
from rqretry.core.durations import Duration
from rqretry.core.errors import InvalidReceiptHandle, RefusedHandle, refuse
from rqretry.core.failure_record import REDRIVEN, AttemptError, read_attempt_record
from rqretry.core.limits import UNLIMITED, check_options, read_whole
from rqretry.core.message_id import born_ms
from rqretry.core.public_call import hinted_fields
from rqretry.core.receipt import Receipt
from rqretry.core.traceparent import trace_id_of

T = TypeVar("T")

SLOT_HEADER = "rqretry-scheduled-for"
"""Of a periodic message: its slot, as an ISO date."""
_HANDLE_PARTS = 5
_UNFITTED = object()


class PublishOptions(TypedDict, total=False):
    """The options of every `publish`, and of a task's `options`.

    Attributes:
        tag: What subscriptions filter by; default none.
        keys: Business keys to find the message by, at most 16; default none.
        headers: User properties, text to text; default none.
        message_group: Ordered groups handle the messages of one message group one at a time, in the
            order in which they were published; at most 63 bytes. Not with a delay. Default none.
        delay: Deliver after this, at most 40 days; default at once.
        delay_level: The same as a level of the namespace's table, 1 for the shortest; default none.
        deliver_at: Deliver at this date: a datetime with a time zone, or seconds since the epoch;
            at most 40 days ahead, and at once where it is past. The server's clock decides. At
            most one of the three can be given; default at once.
        id: Your own id; the same id and content again is a duplicate and stored once. Default a
            new one.
        durability: What must have the message before publish returns: "replica:1" (or more
            replicas) or "disk" (its append-only file; Redis 7.2 and newer). Default the
            primary's memory. NotConfirmed is raised where that is not so within 3 s.
    """

    tag: str | None
    keys: str | Sequence[str]
    headers: Mapping[str, str] | None
    message_group: str | None
    delay: Duration | None
    delay_level: int | None
    deliver_at: datetime | float | None
    id: str | None
    durability: str | None


@hinted_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """A message to publish with `publish_many`: a body, and options; see PublishOptions.

    Attributes:
        body: A JSON-compatible value, or raw bytes; at most 4 MiB.
    """

    body: Any
    tag: str | None = None
    keys: str | Sequence[str] = ()
    headers: Mapping[str, str] | None = None
    message_group: str | None = None
    delay: Duration | None = None
    delay_level: int | None = None
    deliver_at: datetime | float | None = None
    id: str | None = None
    durability: str | None = None


def outgoing(body: Any, options: PublishOptions) -> Any:
    """What `publish` was given, as publish_many takes it. Raises InvalidArgument."""
    if not options:
        return body
    check_options(options, PublishOptions, "publish option")
    if not isinstance(body, OutgoingMessage):
        return OutgoingMessage(body=body, **options)
    given = sorted(name for name, value in options.items() if value not in (None, ()))
    if given:
        refuse("publish option", given[0], "belongs into the OutgoingMessage that is published")
    return body


def several(messages: Iterable[Any]) -> Iterable[Any]:
    """What `publish_many` was given, if it is many messages. Raises InvalidArgument."""
    one = isinstance(messages, str | bytes | bytearray | Mapping)
    if one or not isinstance(messages, Iterable):
        refuse("messages", messages, "must be a list or an iterable of bodies; publish takes one")
    return messages


def durable(messages: Iterable[Any], durability: str | None) -> Iterable[Any]:
    """Messages of a `publish_many`, those that ask for no durability of their own with this one."""
    if durability is None:
        return several(messages)
    check_durability(durability)
    return [
        OutgoingMessage(body=item, durability=durability)
        if not isinstance(item, OutgoingMessage)
        else replace(item, durability=durability)
        if item.durability is None
        else item
        for item in several(messages)
    ]


Lease = tuple[str, int, str, int, str]
"""The fields of a receipt handle; a handle is made of them only where it is asked for."""


class ReceiptHandle(NamedTuple):
    """Names one lease of one message in one group; its text is the public receipt handle."""

    topic: str
    partition: int
    group: str
    lease_no: int
    id: str

    def __str__(self) -> str:
        return "/".join(map(str, self))

    @property
    def receipt(self) -> Receipt:
        """What the scripts compare."""
        return Receipt(self.id, self.lease_no)

    @staticmethod
    def parse(text: object) -> "ReceiptHandle":
        """Read a receipt handle. Raises InvalidReceiptHandle."""
        parts = text.split("/") if isinstance(text, str) else []
        numbers = [read_whole(part) for part in parts[1::2]]
        if len(parts) != _HANDLE_PARTS or None in numbers:
            reason = "it is malformed; pass the message, or its receipt_handle"
            raise InvalidReceiptHandle.of([RefusedHandle(str(text), "", reason)])
        topic, partition, group, lease_no, id_ = parts
        return ReceiptHandle(topic, int(partition), group, int(lease_no), id_)


class Message(Generic[T]):
    """One delivery of one message to one group.

    Attributes:
        id: The same on every delivery, in the dead-letter queue and after a redrive.
        topic: The original topic.
        body: What was published.
        tag, keys, headers: As published; never change.
        attempt: 1 for the first delivery.
        reconsume_times: attempt - 1.
        max_retries: The group's limit when the worker joined it; None is unlimited. There are at
            most max_retries + 1 deliveries.
        group: The consumer group.
        receipt_handle: Names this lease; a change of the invisible duration makes a new one.
        fencing_token: Grows with every lease of this message in this group, also across redrives;
            hand it to the systems you write to, to refuse writers whose lease is over.
        trace_id: 32 hex characters that name the trace of this attempt; where attempts are not
            traced, of the publish, if its headers carry a W3C traceparent; else None.
        cancelled: The lease was lost or the time is up; stop, the result will be rejected.
    """

    __slots__ = (
        "_due_ms", "_error", "_expires", "_fitted", "_lease", "_published_ms", "_span", "_started",
        "_trace_id", "attempt", "body", "cancelled", "group", "headers", "id", "keys",
        "max_retries", "message_group", "tag", "topic",
    )  # fmt: skip

    id: str
    topic: str
    body: T
    tag: str | None
    keys: tuple[str, ...]
    headers: Mapping[str, str]
    message_group: str | None
    attempt: int
    max_retries: int | None
    group: str
    cancelled: bool
    _trace_id: str
    _started: Any
    _span: Any

    def __init__(
        self,
        handle: Lease,
        envelope: Any,
        attempt: int,
        max_retries: int,
        expires: float,
        error: str = "",
    ) -> None:
        """Made by consumers; `expires` is the local monotonic time of the deadline.

        `error` is the newest attempt record, "" for none.
        """
        self._lease = handle
        self.topic, _, self.group, _, self.id = handle
        (
            self.body, self.tag, self.keys, self.headers, self.message_group,
            self._published_ms, self._due_ms,
        ) = envelope  # fmt: skip
        self.attempt = attempt
        self.max_retries = None if max_retries == UNLIMITED else max_retries
        self._expires = expires
        self._error = error
        self.cancelled = False

    @property
    def reconsume_times(self) -> int:
        """How often the message was delivered before: attempt - 1."""
        return self.attempt - 1

    @property
    def last_error(self) -> AttemptError | None:
        """Why the attempt before this one failed; None on a first attempt.

        In a group that consumes dead letters, a first attempt has the cause of death.
        """
        error = read_attempt_record(self._error) if self._error else None
        return None if error is None or error.cause == REDRIVEN else error

    @property
    def receipt_handle(self) -> str:
        """The name of this lease."""
        return str(ReceiptHandle(*self._lease))

    @property
    def fencing_token(self) -> int:
        """The number of this lease; it only ever grows for a message in a group."""
        return ReceiptHandle(*self._lease).lease_no

    @property
    def trace_id(self) -> str | None:
        """The trace of this attempt, else that of the publish; None for none."""
        return getattr(self, "_trace_id", None) or trace_id_of(self.headers.get("traceparent", ""))

    @property
    def published_at(self) -> datetime | None:
        """When it was published, server time as the publisher estimated it."""
        made = self._published_ms or born_ms(self.id)
        return None if made is None else datetime.fromtimestamp(made / 1000, UTC)

    @property
    def scheduled_for(self) -> datetime | None:
        """The slot of a periodic message; None for any other."""
        with suppress(KeyError, ValueError):
            return datetime.fromisoformat(self.headers[SLOT_HEADER])
        return None

    @property
    def deadline(self) -> datetime:
        """When the lease ends unless it is renewed, by this machine's clock; see remaining()."""
        return datetime.now(UTC) + timedelta(seconds=self.remaining())  # noqa: TID251 - for people

    def remaining(self) -> float:
        """Seconds until the lease ends unless it is renewed; 0 when it is over."""
        return max(0.0, self._expires - time.monotonic())

    def _checked_body(self, fit: Callable[[Any], Any]) -> Any:
        """Make the body what the handler promised it would be, once; for consumers.

        Middleware may call the handler again, or change the body first.
        """
        if getattr(self, "_fitted", _UNFITTED) is not self.body:
            self.body = self._fitted = fit(self.body)
        return self.body

    def _moved(self, lease_no: int, expires: float) -> None:
        """The lease has a new number and end: its invisible duration was changed."""
        self._lease = ReceiptHandle(*self._lease)._replace(lease_no=lease_no)
        self._expires = expires

    def __repr__(self) -> str:
        return f"<Message {self.id} of {self.topic} for {self.group}, attempt {self.attempt}>"
