"""Every exception a user of rqretry can catch, and how a bad value is shown in one.

All of them are `RqretryError`; each class has one sentence about when it is
raised. The message of every error is one plain sentence: the value at fault, what is
allowed and what to do. Exceptions with fields build that sentence themselves, and all
of them can be pickled, because a handler may run in another process. Other sentences are written
where they are raised, such as that of `TopicNotFound` in catalog/store.py.
"""

import reprlib
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple, NoReturn

SHOWN_CHARACTERS = 120
_CUT = "..."


class RqretryError(Exception):
    """The base of every error that rqretry raises on purpose."""


class ConfigError(RqretryError):
    """Raised when a URL, a setting or an application cannot work as it is written, or here."""


class InvalidArgument(RqretryError, ValueError):
    """Raised when a value is outside its limits, or conflicts with another; nothing was written."""


class MessageIdTaken(InvalidArgument):
    """Raised when a message id is the id of another message; nothing was written."""


class MessageTooLarge(InvalidArgument):
    """Raised when a body is larger than the limit; nothing was written."""


class CodecError(RqretryError):
    """Raised when a body cannot be encoded, or stored message bytes be read."""


class GroupNotFound(RqretryError):
    """Raised when a consumer group that must exist does not."""


class TopicNotFound(RqretryError):
    """Raised when a topic that must exist does not."""


class MessageNotFound(RqretryError):
    """Raised when no message with that id is stored."""


class RefusedHandle(NamedTuple):
    """A receipt handle that was refused."""

    handle: str
    id: str
    """Of the message; "" if the handle is malformed."""
    reason: str


class InvalidReceiptHandle(RqretryError):
    """Raised when receipts are malformed or their leases have ended; nothing changed for them.

    Attributes:
        refused: Each of them; an ack of several has committed the others.
    """

    refused: tuple[RefusedHandle, ...] = ()

    @classmethod
    def of(cls, refused: Iterable[RefusedHandle]) -> "InvalidReceiptHandle":
        """What to raise for these."""
        handles = tuple(refused)
        handle, id_, reason = handles[0]
        first = f"receipt handle {show(handle)}{id_ and f' of message {show(id_)}'}"
        if len(handles) == 1:
            error = cls(f"{first} is not valid: {reason}; nothing was changed for it")
        else:
            error = cls(
                f"{len(handles)} receipt handles are not valid, and nothing was changed for them:"
                f" the first is {first}: {reason}"
            )
        error.refused = handles
        return error


class QueueFull(RqretryError):
    """Raised when a topic holds as many messages as it may; nothing was written.

    Attributes:
        room: How many more the partition would have taken.
    """

    room = 0

    @classmethod
    def of(cls, topic: str, stored: int, limit: int) -> "QueueFull":
        """What to raise for a partition that may not store more."""
        error = cls(
            f"topic {show(topic)} is full: a partition stores {stored} of at most"
            f" {limit} messages; nothing was stored. Let consumers drain it, or raise its limit"
            " (max_messages)"
        )
        error.room = limit - stored
        return error


class ScheduleNotFound(RqretryError):
    """Raised when a schedule that must exist does not."""


class TransactionNotFound(RqretryError):
    """Raised when a transaction is not known, or was finished some time ago."""


class TransactionDecided(RqretryError):
    """Raised when a transaction was decided the other way before, or takes no more messages."""


class UnsafeServer(RqretryError):
    """Raised when the server is too old, or its settings could lose messages."""


class StoreUnavailable(RqretryError):
    """Raised when the server cannot be reached, or cannot answer now; the call did nothing."""


class AmbiguousResult(RqretryError):
    """Raised when a call may have happened; it is safe to repeat with the same id.

    Who publishes again stores nothing twice through the same client, for an hour. Others cannot
    know what became of an id that the client made and all groups have committed: where another
    client or process may have to repeat it, choose the id.

    Args:
        operation: The call, such as "publish".
        ids: The ids of the messages in the call.
        reason: What broke, such as "the connection was closed"; may be empty.
    """

    def __init__(self, operation: str, ids: Iterable[str], reason: str = "") -> None:
        self.operation = operation
        self.ids = tuple(ids)
        self.reason = reason
        super().__init__(operation, self.ids, reason)

    @property
    def id(self) -> str:
        """The first id of the call, or "" when it named none."""
        return self.ids[0] if self.ids else ""

    def __str__(self) -> str:
        because = f" ({self.reason})" if self.reason else ""
        of = f" of {shown_ids(self.ids)}" if self.ids or self.operation != "receive" else ""
        return f"{self.operation}{of} may have happened{because}; {self._how}"

    @property
    def _how(self) -> str:
        if self.operation == "receive":
            return "the messages it took, if any, are delivered again when their time ends"
        how = "it is safe to repeat with the same id"
        if self.operation == "publish":
            how += " through this client within an hour, or through any if you chose the id"
        return how


class ForgottenResult(AmbiguousResult):
    """Raised when a publish may have happened, and more is in doubt than a client remembers."""

    @property
    def _how(self) -> str:
        return (
            "too much is in doubt to remember it: repeated with the same id it may be handled"
            " twice, unless you chose the id"
        )


class NotConfirmed(RqretryError):
    """Raised when messages are stored, but not as durably as was asked for.

    Publishing one again with the same id waits again, and stores nothing twice.

    Args:
        ids: The ids of the messages.
        durability: What was asked for, such as "replica:1".
        reason: Why it was not confirmed.
    """

    def __init__(self, ids: Iterable[str], durability: str, reason: str) -> None:
        self.ids = tuple(ids)
        self.durability = durability
        self.reason = reason
        super().__init__(self.ids, durability, reason)

    @property
    def id(self) -> str:
        """The first id."""
        return self.ids[0] if self.ids else ""

    def __str__(self) -> str:
        are = "is" if len(self.ids) == 1 else "are"
        return (
            f"{shown_ids(self.ids)} {are} stored, but {show(self.durability)[1:-1]} was not"
            f" confirmed ({self.reason}); publish again with the same id to wait again"
        )


class PublishError(RqretryError):
    """Raised when a part of `publish_many` failed; it lists which ids are stored.

    Args:
        done: Ids that are stored; where a durability was asked for, each has what it got.
        failed: Ids that are not stored.
        ambiguous: Ids that may be stored; how to repeat them, AmbiguousResult says.
        reason: The first error, in words; may be empty.
    """

    first: Exception | None = None
    """The first error, in the process that met it."""

    def __init__(
        self,
        done: Iterable[str],
        failed: Iterable[str],
        ambiguous: Iterable[str],
        reason: str = "",
    ) -> None:
        self.done = tuple(done)
        self.failed = tuple(failed)
        self.ambiguous = tuple(ambiguous)
        self.reason = reason
        super().__init__(self.done, self.failed, self.ambiguous, reason)

    def __str__(self) -> str:
        because = f": {self.reason}" if self.reason else ""
        return (
            f"publish stored {len(self.done)} messages, {len(self.failed)} failed and"
            f" {len(self.ambiguous)} may be stored{because}; publish the failed and the"
            " ambiguous ones again with the same ids, through this client within an hour"
        )


class ScriptError(RqretryError):
    """Raised when a Lua script fails, which is a bug in rqretry.

    Args:
        script: The file, such as "lua/fail.lua".
        line: The line in that file, or 0 when it is not known.
        reason: What the server said.
    """

    def __init__(self, script: str, line: int, reason: str) -> None:
        self.script = script
        self.line = line
        self.reason = reason
        super().__init__(script, line, reason)

    def __str__(self) -> str:
        location = f"{self.script}:{self.line}" if self.line else self.script
        return f"{location}: {self.reason} (a bug in rqretry; please report it)"


def show(value: object) -> str:
    """Escaped text of any value for an error message; ASCII, short, never raises."""
    try:
        text = _escaped(value)
    except BaseException:  # noqa: BLE001 - a __repr__ that fails, or exits, hides no real error
        text = f"<{type(value).__name__}>".encode("ascii", "backslashreplace").decode()
    if len(text) <= SHOWN_CHARACTERS:
        return text
    return text[: SHOWN_CHARACTERS - len(_CUT)] + _CUT


def escape(text: str) -> str:
    """Text of others for a terminal or a log: what is not printable, line ends too, as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def refuse(name: str, value: object, rule: str) -> NoReturn:
    """Raise InvalidArgument: the argument's name, the value at fault, and the rule."""
    message = f"{name} {show(value)} {rule}"
    raise InvalidArgument(message)


def end_at_caller(error: RqretryError) -> None:
    """Have the traceback of an error, raised again, end at the line that called us.

    Of what caused it, only the first cause that is not ours is left, as one line. `python -X dev`,
    or PYTHONDEVMODE=1, shows all of it.
    """
    if sys.flags.dev_mode:
        return
    cause, seen = error.__cause__, {id(error)}
    while cause is not None and type(cause).__module__.startswith("rqretry."):
        seen.add(id(cause))
        cause = None if id(cause.__cause__) in seen else cause.__cause__
    if cause is not None:
        cause.__traceback__, cause.__cause__ = None, None
    if error.__cause__ is not None:
        error.__cause__ = cause
    error.__traceback__ = None


def _escaped(value: object) -> str:
    if isinstance(value, str | bytes | bytearray):
        # Cut before escaping: the value at fault may be a body of many megabytes.
        return ascii(value[: SHOWN_CHARACTERS + 1])
    if isinstance(value, datetime):
        return ascii(value.isoformat())[1:-1]
    return _SHORT.repr(value).encode("ascii", "backslashreplace").decode()


def _short_repr() -> reprlib.Repr:
    short = reprlib.Repr()
    short.maxlevel = 3
    short.maxlist = short.maxtuple = short.maxdict = short.maxset = 4
    short.maxstring = short.maxother = SHOWN_CHARACTERS
    return short


def shown_ids(ids: Sequence[str]) -> str:
    """Which messages an error is about."""
    if not ids:
        return "an unnamed message"
    if len(ids) == 1:
        return f"message {show(ids[0])}"
    return f"{len(ids)} messages, the first {show(ids[0])},"


_SHORT = _short_repr()
