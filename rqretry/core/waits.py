"""How long a message waited for an attempt, and what held its place back meanwhile.

All of it is found out where somebody asks for it; on the way of a message only references are kept.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from rqretry.core.failure_record import REDRIVEN, AttemptError
from rqretry.core.message import Message
from rqretry.core.message_id import born_ms

PAUSED, LIMITED = "paused", "limited"
"""Why a place gave nothing: its group is paused, or it has reached a limit."""
MOST_REFUSALS = 64
_MOST_DUE = 10_000


class Refusal(NamedTuple):
    """A time in which a place gave nothing, in monotonic seconds."""

    why: str
    since: float
    until: float


class Started(NamedTuple):
    """What a worker knows of an attempt when it starts.

    Attributes:
        leased_at: When the message was leased, in monotonic seconds.
        started_at: When the attempt started.
        seen: The server's time in ms, and when it was that.
        refusals: When its place gave nothing.
    """

    leased_at: float
    started_at: float
    seen: tuple[int, float]
    refusals: Sequence[Refusal] = ()

    def server_ms(self, at: float) -> int:
        """The server's time at a monotonic time."""
        now_ms, now = self.seen
        return now_ms + round((at - now) * 1000)

    def waits(self, due_ms: int) -> "Waits":
        """How long a message waited that was due then."""
        leased_ms = self.server_ms(self.leased_at)
        queue_ms = max(0, leased_ms - due_ms)
        buffer_ms = max(0, round((self.started_at - self.leased_at) * 1000))
        due_at = self.leased_at - queue_ms / 1000
        return Waits(due_ms, queue_ms, buffer_ms, self._held(PAUSED, due_at),
                     self._held(LIMITED, due_at))  # fmt: skip

    def _held(self, why: str, due_at: float) -> int:
        held = (
            min(refusal.until, self.leased_at) - max(refusal.since, due_at)
            for refusal in self.refusals
            if refusal.why == why
        )
        return round(1000 * sum(seconds for seconds in held if seconds > 0))


class Waits(NamedTuple):
    """How long a message waited, in milliseconds.

    Attributes:
        due_ms: When it was due, server time.
        queue_ms: From then until it was leased; 0 if an operator made it ready before.
        buffer_ms: From the lease until the attempt started: for a free slot.
        paused_ms: How much of `queue_ms` the group was paused, as far as this worker saw it.
        limited_ms: How much of it the group had reached its max_inflight or its rate_limit.
    """

    due_ms: int
    queue_ms: int
    buffer_ms: int
    paused_ms: int = 0
    limited_ms: int = 0

    @property
    def lateness_ms(self) -> int:
        """From when it was due until the attempt started."""
        return self.queue_ms + self.buffer_ms


def first_due_ms(message: Message[Any]) -> int | None:
    """When a message was due that has not been delivered yet, server time."""
    return message._due_ms or message._published_ms or born_ms(message.id)  # noqa: SLF001 - for observers


def known_due_ms(message: Message[Any], before: AttemptError | None) -> int | None:
    """When a message was due, server time; `before` is the last record of an attempt of it.

    None where that is not in Redis: of a message that was put off, or given back untouched.
    """
    if not message._error:  # noqa: SLF001 - as above
        return first_due_ms(message)
    if before is None:
        return None
    if before.due_ms is None and (before.cause == REDRIVEN or message.attempt == 1):
        return before.at_ms  # it was sent back then, or died and is consumed as a dead letter
    return before.due_ms


class DueTimes:
    """When messages are due that were put off in this process; Redis does not say it later."""

    def __init__(self) -> None:
        self._due: dict[tuple[str, str], tuple[int, int]] = {}
        """The number of the next lease, and the time."""

    def note(self, message: Message[Any], due_ms: int) -> None:
        """It waits until then, server time."""
        if len(self._due) >= _MOST_DUE:
            del self._due[next(iter(self._due))]
        self._due[message.group, message.id] = message.fencing_token + 1, due_ms

    def waits(self, message: Message[Any], before: AttemptError | None) -> Waits | None:
        """How long it waited; None where that is not known."""
        started: Started | None = getattr(message, "_started", None)
        if started is None:
            return None
        noted = self._due.pop((message.group, message.id), None) if self._due else None
        if noted is not None and noted[0] == message.fencing_token:
            return started.waits(noted[1])
        due = known_due_ms(message, before)
        return None if due is None else started.waits(due)
