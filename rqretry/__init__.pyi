from rqretry.admin.dead_letter_filter import DeadLetterFilter
from rqretry.admin.results import (
    AuditEntry,
    Checkup,
    InflightMessage,
    Problem,
    RedriveReport,
    Repair,
    WorkerInfo,
)
from rqretry.admin.transactions import TransactionInfo
from rqretry.admin.views import (
    AttemptForecast,
    GroupForecast,
    GroupInfo,
    GroupState,
    GroupStats,
    MessageView,
    Stats,
    TimelineEvent,
    TopicInfo,
    TopicStats,
    Waiting,
)
from rqretry.app import App
from rqretry.client import Admin, AsyncAdmin, AsyncClient, Client
from rqretry.consumer.registry import ConsumerOptions
from rqretry.consumer.simple_consumer import (
    AsyncSimpleConsumer,
    SimpleConsumer,
    SimpleConsumerOptions,
)
from rqretry.consumer.task import Task, TaskSender
from rqretry.consumer.transaction_checker import (
    HalfMessage,
    TransactionCheck,
    TransactionCheckerOptions,
    TransactionOptions,
    TransactionResolution,
)
from rqretry.consumer.typed_topic import Topic
from rqretry.core.consume_result import (
    ConsumeResult,
    DeadLetter,
    HandlerSignal,
    Outcome,
    Postpone,
    Retry,
)
from rqretry.core.dead_letter import DeadLetterRecord
from rqretry.core.durations import Duration
from rqretry.core.errors import (
    AmbiguousResult,
    CodecError,
    ConfigError,
    GroupNotFound,
    InvalidArgument,
    InvalidReceiptHandle,
    MessageNotFound,
    MessageTooLarge,
    NotConfirmed,
    PublishError,
    QueueFull,
    RqretryError,
    StoreUnavailable,
    TopicNotFound,
    TransactionDecided,
    TransactionNotFound,
    UnsafeServer,
)
from rqretry.core.failure_record import AttemptError
from rqretry.core.message import Message, OutgoingMessage, PublishOptions
from rqretry.core.message_id import MessageId
from rqretry.core.middleware import CallNext, Event
from rqretry.core.retry_policy import RetryPolicy
from rqretry.core.typed_body import BodyMismatch
from rqretry.producer.transaction import AsyncTransaction, Transaction
from rqretry.version import __version__

__all__ = [
    "Admin",
    "AmbiguousResult",
    "App",
    "AsyncAdmin",
    "AsyncClient",
    "AsyncSimpleConsumer",
    "AsyncTransaction",
    "AttemptError",
    "AttemptForecast",
    "AuditEntry",
    "BodyMismatch",
    "CallNext",
    "Checkup",
    "Client",
    "CodecError",
    "ConfigError",
    "ConsumeResult",
    "ConsumerOptions",
    "DeadLetter",
    "DeadLetterFilter",
    "DeadLetterRecord",
    "Duration",
    "Event",
    "GroupForecast",
    "GroupInfo",
    "GroupNotFound",
    "GroupState",
    "GroupStats",
    "HalfMessage",
    "HandlerSignal",
    "InflightMessage",
    "InvalidArgument",
    "InvalidReceiptHandle",
    "Message",
    "MessageId",
    "MessageNotFound",
    "MessageTooLarge",
    "MessageView",
    "NotConfirmed",
    "Outcome",
    "OutgoingMessage",
    "Postpone",
    "Problem",
    "PublishError",
    "PublishOptions",
    "QueueFull",
    "RedriveReport",
    "Repair",
    "Retry",
    "RetryPolicy",
    "RqretryError",
    "SimpleConsumer",
    "SimpleConsumerOptions",
    "Stats",
    "StoreUnavailable",
    "Task",
    "TaskSender",
    "TimelineEvent",
    "Topic",
    "TopicInfo",
    "TopicNotFound",
    "TopicStats",
    "Transaction",
    "TransactionCheck",
    "TransactionCheckerOptions",
    "TransactionDecided",
    "TransactionInfo",
    "TransactionNotFound",
    "TransactionOptions",
    "TransactionResolution",
    "UnsafeServer",
    "Waiting",
    "WorkerInfo",
    "__version__",
]
