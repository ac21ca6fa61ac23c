"""rqretry: consumer groups, a retry ladder and a dead-letter queue for Python, on Redis.

What a program catches, annotates or returns is here. The names are imported when they are first
used (PEP 562), so that a program that only needs one module of the package, such as the pytest
plugin, does not wait for redis. What type checkers see is in __init__.pyi; a test compares both.
"""

from rqretry.core.lazy_exports import attributes

_NAMES = {
    "rqretry.admin.dead_letter_filter": "DeadLetterFilter",
    "rqretry.admin.results": """
        AuditEntry Checkup InflightMessage Problem RedriveReport Repair WorkerInfo
    """,
    "rqretry.admin.transactions": "TransactionInfo",
    "rqretry.admin.views": """
        AttemptForecast GroupForecast GroupInfo GroupState GroupStats MessageView Stats
        TimelineEvent TopicInfo TopicStats Waiting
    """,
    "rqretry.app": "App",
    "rqretry.client": "Admin AsyncAdmin AsyncClient Client",
    "rqretry.consumer.registry": "ConsumerOptions",
    "rqretry.consumer.simple_consumer": "AsyncSimpleConsumer SimpleConsumer SimpleConsumerOptions",
    "rqretry.consumer.task": "Task TaskSender",
    "rqretry.consumer.transaction_checker": """
        HalfMessage TransactionCheck TransactionCheckerOptions TransactionOptions
        TransactionResolution
    """,
    "rqretry.consumer.typed_topic": "Topic",
    "rqretry.core.consume_result": "ConsumeResult DeadLetter HandlerSignal Outcome Postpone Retry",
    "rqretry.core.dead_letter": "DeadLetterRecord",
    "rqretry.core.durations": "Duration",
    "rqretry.core.errors": """
        AmbiguousResult CodecError ConfigError GroupNotFound InvalidArgument InvalidReceiptHandle
        MessageNotFound MessageTooLarge NotConfirmed PublishError QueueFull RqretryError
        StoreUnavailable TopicNotFound TransactionDecided TransactionNotFound UnsafeServer
    """,
    "rqretry.core.failure_record": "AttemptError",
    "rqretry.core.message": "Message OutgoingMessage PublishOptions",
    "rqretry.core.message_id": "MessageId",
    "rqretry.core.middleware": "CallNext Event",
    "rqretry.core.retry_policy": "RetryPolicy",
    "rqretry.core.typed_body": "BodyMismatch",
    "rqretry.producer.transaction": "AsyncTransaction Transaction",
    "rqretry.version": "__version__",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [*_MODULES]  # noqa: PLE0604 - the stub has them one by one

__getattr__, __dir__ = attributes(__name__, _MODULES)
