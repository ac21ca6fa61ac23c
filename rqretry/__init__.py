"""rqretry: consumer groups, a retry ladder and a dead-letter queue for Python, on Redis.

The names are imported when they are first used (PEP 562), so that a program that only needs one
module of the package, such as the pytest plugin, does not wait for redis. What type checkers see is
in __init__.pyi; a test compares both.
"""

from rqretry.lazy import attributes

_MODULES = {
    "AmbiguousResult": "rqretry.errors",
    "App": "rqretry.app",
    "AsyncClient": "rqretry.client",
    "Client": "rqretry.client",
    "CodecError": "rqretry.errors",
    "ConfigError": "rqretry.errors",
    "ConsumeResult": "rqretry.outcome",
    "DeadLetter": "rqretry.outcome",
    "DeadLetterFilter": "rqretry.admin.dead_letters",
    "GroupNotFound": "rqretry.errors",
    "InvalidArgument": "rqretry.errors",
    "InvalidReceiptHandle": "rqretry.errors",
    "Message": "rqretry.message",
    "MessageId": "rqretry.ids",
    "MessageNotFound": "rqretry.errors",
    "MessageTooLarge": "rqretry.errors",
    "NotConfirmed": "rqretry.errors",
    "OutgoingMessage": "rqretry.message",
    "Postpone": "rqretry.outcome",
    "PublishError": "rqretry.errors",
    "QueueFull": "rqretry.errors",
    "Retry": "rqretry.outcome",
    "RetryPolicy": "rqretry.policy",
    "RqretryError": "rqretry.errors",
    "ScriptError": "rqretry.errors",
    "StoreUnavailable": "rqretry.errors",
    "TopicNotFound": "rqretry.errors",
    "TransactionDecided": "rqretry.errors",
    "TransactionNotFound": "rqretry.errors",
    "TransactionResolution": "rqretry.checkers",
    "UnsafeServer": "rqretry.errors",
    "__version__": "rqretry.version",
}

__all__ = [*_MODULES]  # noqa: PLE0604 - the stub has them one by one

__getattr__, __dir__ = attributes(__name__, _MODULES)
