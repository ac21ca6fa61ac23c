from rqretry.admin.dead_letter_filter import DeadLetterFilter as DeadLetterFilter
from rqretry.app import App as App
from rqretry.client import AsyncClient as AsyncClient
from rqretry.client import Client as Client
from rqretry.consumer.transaction_checker import TransactionResolution as TransactionResolution
from rqretry.core.consume_result import ConsumeResult as ConsumeResult
from rqretry.core.consume_result import DeadLetter as DeadLetter
from rqretry.core.consume_result import Postpone as Postpone
from rqretry.core.consume_result import Retry as Retry
from rqretry.core.errors import AmbiguousResult as AmbiguousResult
from rqretry.core.errors import CodecError as CodecError
from rqretry.core.errors import ConfigError as ConfigError
from rqretry.core.errors import GroupNotFound as GroupNotFound
from rqretry.core.errors import InvalidArgument as InvalidArgument
from rqretry.core.errors import InvalidReceiptHandle as InvalidReceiptHandle
from rqretry.core.errors import MessageNotFound as MessageNotFound
from rqretry.core.errors import MessageTooLarge as MessageTooLarge
from rqretry.core.errors import NotConfirmed as NotConfirmed
from rqretry.core.errors import PublishError as PublishError
from rqretry.core.errors import QueueFull as QueueFull
from rqretry.core.errors import RqretryError as RqretryError
from rqretry.core.errors import ScriptError as ScriptError
from rqretry.core.errors import StoreUnavailable as StoreUnavailable
from rqretry.core.errors import TopicNotFound as TopicNotFound
from rqretry.core.errors import TransactionDecided as TransactionDecided
from rqretry.core.errors import TransactionNotFound as TransactionNotFound
from rqretry.core.errors import UnsafeServer as UnsafeServer
from rqretry.core.message import Message as Message
from rqretry.core.message import OutgoingMessage as OutgoingMessage
from rqretry.core.message_id import MessageId as MessageId
from rqretry.core.retry_policy import RetryPolicy as RetryPolicy
from rqretry.version import __version__ as __version__

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
    "NotConfirmed",
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
