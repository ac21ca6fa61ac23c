"""rqretry: consumer groups, a retry ladder and a dead-letter queue for Python, on Redis.

The names are imported when they are first used (PEP 562), so that a program that only needs one
module of the package, such as the pytest plugin, does not wait for redis. What type checkers see is
in __init__.pyi; a test compares both.
"""

from rqretry.core.lazy_exports import attributes

_MODULES = {
    "AmbiguousResult": "rqretry.core.errors",
    "App": "rqretry.app",
    "AsyncClient": "rqretry.client",
    "Client": "rqretry.client",
    "CodecError": "rqretry.core.errors",
    "ConfigError": "rqretry.core.errors",
    "ConsumeResult": "rqretry.core.consume_result",
    "DeadLetter": "rqretry.core.consume_result",
    "DeadLetterFilter": "rqretry.admin.dead_letter_filter",
    "GroupNotFound": "rqretry.core.errors",
    "InvalidArgument": "rqretry.core.errors",
    "InvalidReceiptHandle": "rqretry.core.errors",
    "Message": "rqretry.core.message",
    "MessageId": "rqretry.core.message_id",
    "MessageNotFound": "rqretry.core.errors",
    "MessageTooLarge": "rqretry.core.errors",
    "NotConfirmed": "rqretry.core.errors",
    "OutgoingMessage": "rqretry.core.message",
    "Postpone": "rqretry.core.consume_result",
    "PublishError": "rqretry.core.errors",
    "QueueFull": "rqretry.core.errors",
    "Retry": "rqretry.core.consume_result",
    "RetryPolicy": "rqretry.core.retry_policy",
    "RqretryError": "rqretry.core.errors",
    "ScriptError": "rqretry.core.errors",
    "StoreUnavailable": "rqretry.core.errors",
    "TopicNotFound": "rqretry.core.errors",
    "TransactionDecided": "rqretry.core.errors",
    "TransactionNotFound": "rqretry.core.errors",
    "TransactionResolution": "rqretry.consumer.transaction_checker",
    "UnsafeServer": "rqretry.core.errors",
    "__version__": "rqretry.version",
}

__all__ = [*_MODULES]  # noqa: PLE0604 - the stub has them one by one

__getattr__, __dir__ = attributes(__name__, _MODULES)
