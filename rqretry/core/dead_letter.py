"""A dead letter as users see it, decoded from what its partition stores."""

from dataclasses import dataclass
from typing import Any

from rqretry.core.envelope import Envelope, decode
from rqretry.core.errors import CodecError
from rqretry.core.failure_record import BY_HAND, AttemptError, latest, read_record
from rqretry.core.message_id import born_ms

_UNREADABLE = Envelope(None, None, (), {}, None, None)


@dataclass(frozen=True, slots=True)
class DeadLetterRecord:
    """One message in a group's dead-letter queue."""

    id: str
    topic: str
    group: str
    body: Any
    """None if it was not requested, or cannot be decoded (then `raw` has the bytes)."""
    raw: bytes
    tag: str | None
    keys: tuple[str, ...]
    headers: dict[str, str]
    born_ms: int | None
    attempt: int
    """Deliveries made."""
    cause: str
    """Why the last one ended: failure, expired, given_back, timeout, rejected, undecodable; or
    by_hand: an operator ended it."""
    dead_since_ms: int
    errors: tuple[AttemptError, ...]
    """The failure record: the first 3 and the last 16 attempts."""

    @property
    def error(self) -> str:
        """The last error in one line: its type and message, or the reason or cause."""
        return self.cause if self._last is None else str(self._last)

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the last error."""
        return self._last.fingerprint if self._last else ""

    @property
    def deliveries(self) -> int:
        """How often it was delivered."""
        return self.attempt

    @property
    def interruptions(self) -> int:
        """Attempts since the last redrive, of those in `errors`, whose worker died or hung."""
        return sum(error.cause == "expired" for error in latest(self.errors))

    @property
    def failures(self) -> int:
        """Attempts since the last redrive, of those in `errors`, that failed."""
        return sum(error.cause not in ("expired", BY_HAND) for error in latest(self.errors))

    @property
    def _last(self) -> AttemptError | None:
        return self.errors[-1] if self.errors else None


def read_dead_letter(
    topic: str, group: str, id_: str, since_ms: int, death: str, record: str, data: bytes
) -> DeadLetterRecord:
    """Decode a dead letter; `data` is b"" if the body was not requested."""
    attempt, cause, *_ = *death.split(" "), ""
    try:
        envelope = decode(data) if data else _UNREADABLE
    except CodecError:
        envelope = _UNREADABLE
    return DeadLetterRecord(
        id=id_,
        topic=topic,
        group=group,
        body=envelope.body,
        raw=data,
        tag=envelope.tag,
        keys=envelope.keys,
        headers=dict(envelope.headers),
        born_ms=born(id_, envelope),
        attempt=int(attempt or 0),
        cause=cause,
        dead_since_ms=since_ms,
        errors=tuple(read_record(record)),
    )


def born(id_: str, envelope: Envelope) -> int | None:
    """When a message was published, milliseconds since the epoch."""
    return envelope.born_ms or born_ms(id_)
