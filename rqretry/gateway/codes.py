"""What the protocol answers: one table from our errors to its status codes."""

import logging
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from rqretry.core.errors import (
    AmbiguousResult,
    CodecError,
    ConfigError,
    GroupNotFound,
    InvalidArgument,
    InvalidReceiptHandle,
    MessageIdTaken,
    MessageNotFound,
    MessageTooLarge,
    NotConfirmed,
    QueueFull,
    RqretryError,
    StoreUnavailable,
    TopicNotFound,
    TransactionDecided,
    TransactionNotFound,
    UnsafeServer,
)
from rqretry.gateway.protocol import v2

log = logging.getLogger("rqretry")

Code = v2.Code
T = TypeVar("T")

_CODES: tuple[tuple[type[RqretryError], int], ...] = (
    (MessageTooLarge, Code.MESSAGE_BODY_TOO_LARGE),
    (MessageIdTaken, Code.ILLEGAL_MESSAGE_ID),
    (InvalidArgument, Code.BAD_REQUEST),
    (CodecError, Code.MESSAGE_CORRUPTED),
    (GroupNotFound, Code.CONSUMER_GROUP_NOT_FOUND),
    (TopicNotFound, Code.TOPIC_NOT_FOUND),
    (MessageNotFound, Code.NOT_FOUND),
    (InvalidReceiptHandle, Code.INVALID_RECEIPT_HANDLE),
    (QueueFull, Code.TOO_MANY_REQUESTS),
    (TransactionNotFound, Code.INVALID_TRANSACTION_ID),
    (TransactionDecided, Code.INVALID_TRANSACTION_ID),
    (StoreUnavailable, Code.PROXY_TIMEOUT),
    (AmbiguousResult, Code.PROXY_TIMEOUT),
    (NotConfirmed, Code.SLAVE_PERSISTENCE_TIMEOUT),
    (UnsafeServer, Code.HA_NOT_AVAILABLE),
    (ConfigError, Code.FORBIDDEN),
)
"""The first that fits; a subclass stands before its base."""


class Refused(RqretryError):
    """Raised when a request is answered with this code; nothing was changed."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def status_of(error: BaseException) -> Any:
    """The status that says what an error means; a bug is logged, and shows nothing of itself."""
    if isinstance(error, Refused):
        return status(error.code, str(error))
    for kind, code in _CODES:
        if isinstance(error, kind):
            return status(code, str(error))
    log.error("a call of the gateway failed", exc_info=error)
    return status(Code.INTERNAL_SERVER_ERROR, "the gateway has failed; its log has more")


def status(code: int, message: str = "") -> Any:
    """A status."""
    return v2.Status(code=code, message=message or Code.Name(code))


OK = status(Code.OK)


def overall(statuses: Iterable[Any]) -> Any:
    """The status of a call with a status for each of its parts."""
    parts = list(statuses)
    codes = {part.code for part in parts}
    if len(codes) > 1:
        return status(Code.MULTIPLE_RESULTS)
    return parts[0] if parts else OK


def checked(code: int, check: Callable[[Any], T], value: Any) -> T:
    """The value as a check of the core answers it; what it refuses is refused with this code."""
    try:
        return check(value)
    except InvalidArgument as error:
        raise Refused(code, str(error)) from None
