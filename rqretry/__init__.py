"""rqretry: consumer groups, a retry ladder and a dead-letter queue for Python, on Redis."""

from rqretry.admin.dead_letters import DeadLetterFilter
from rqretry.app import App
from rqretry.checkers import TransactionResolution
from rqretry.client import AsyncClient, Client
from rqretry.errors import (
    AmbiguousResult,
    CodecError,
    ConfigError,
    GroupNotFound,
    InvalidArgument,
    InvalidReceiptHandle,
    MessageNotFound,
    MessageTooLarge,
    PublishError,
    QueueFull,
    RqretryError,
    ScriptError,
    StoreUnavailable,
    TopicNotFound,
    TransactionDecided,
    TransactionNotFound,
    UnsafeServer,
)
from rqretry.ids import MessageId
from rqretry.message import Message, OutgoingMessage
from rqretry.outcome import ConsumeResult, DeadLetter, Postpone, Retry
from rqretry.policy import RetryPolicy
from rqretry.version import __version__

__all__ = [
    "AmbiguousResult",
    "App",
    "AsyncClient",
    "Client",
    "CodecError",
    "ConfigError",
    "ConsumeResult",
    "DeadLetter",
    "DeadLetterFilter",
    "GroupNotFound",
    "InvalidArgument",
    "InvalidReceiptHandle",
    "Message",
    "MessageId",
    "MessageNotFound",
    "MessageTooLarge",
    "OutgoingMessage",
    "Postpone",
    "PublishError",
    "QueueFull",
    "Retry",
    "RetryPolicy",
    "RqretryError",
    "ScriptError",
    "StoreUnavailable",
    "TopicNotFound",
    "TransactionDecided",
    "TransactionNotFound",
    "TransactionResolution",
    "UnsafeServer",
    "__version__",
]
