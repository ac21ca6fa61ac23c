from rqretry.admin.dead_letters import DeadLetterFilter as DeadLetterFilter
from rqretry.app import App as App
from rqretry.checkers import TransactionResolution as TransactionResolution
from rqretry.client import AsyncClient as AsyncClient
from rqretry.client import Client as Client
from rqretry.errors import AmbiguousResult as AmbiguousResult
from rqretry.errors import CodecError as CodecError
from rqretry.errors import ConfigError as ConfigError
from rqretry.errors import GroupNotFound as GroupNotFound
from rqretry.errors import InvalidArgument as InvalidArgument
from rqretry.errors import InvalidReceiptHandle as InvalidReceiptHandle
from rqretry.errors import MessageNotFound as MessageNotFound
from rqretry.errors import MessageTooLarge as MessageTooLarge
from rqretry.errors import NotConfirmed as NotConfirmed
from rqretry.errors import PublishError as PublishError
from rqretry.errors import QueueFull as QueueFull
from rqretry.errors import RqretryError as RqretryError
from rqretry.errors import ScriptError as ScriptError
from rqretry.errors import StoreUnavailable as StoreUnavailable
from rqretry.errors import TopicNotFound as TopicNotFound
from rqretry.errors import TransactionDecided as TransactionDecided
from rqretry.errors import TransactionNotFound as TransactionNotFound
from rqretry.errors import UnsafeServer as UnsafeServer
from rqretry.ids import MessageId as MessageId
from rqretry.message import Message as Message
from rqretry.message import OutgoingMessage as OutgoingMessage
from rqretry.outcome import ConsumeResult as ConsumeResult
from rqretry.outcome import DeadLetter as DeadLetter
from rqretry.outcome import Postpone as Postpone
from rqretry.outcome import Retry as Retry
from rqretry.policy import RetryPolicy as RetryPolicy
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
