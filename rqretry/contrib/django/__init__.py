"""rqretry in a Django project (the extra `rqretry[django]`): put this into INSTALLED_APPS."""

from copy import deepcopy
from functools import partial
from typing import TypeVar, Unpack

from rqretry.consumer.typed_topic import Topic
from rqretry.core.message import OutgoingMessage, PublishOptions, outgoing
from rqretry.producer.encode import draft

try:
    from django.db import transaction
except ImportError as error:
    raise ImportError(
        "rqretry.contrib.django needs Django: run pip install 'rqretry[django]'"
    ) from error

__all__ = ["publish_on_commit"]

T = TypeVar("T")


def publish_on_commit(
    topic: Topic[T],
    body: T | OutgoingMessage,
    *,
    using: str | None = None,
    **options: Unpack[PublishOptions],
) -> None:
    """Publish a message when the current transaction commits; at once where there is none.

    The message is checked and copied now: what cannot be published rolls the transaction back.
    Nothing is published after a rollback. A publish that fails after the commit raises where the
    transaction ends, and a process that dies in between publishes nothing: where that must not
    be, use an outbox.

    Args:
        topic: A topic of the app.
        body: What its `publish` takes.
        using: The database; default Django's own choice.
        options: See rqretry.PublishOptions.

    Raises:
        InvalidArgument, MessageTooLarge, CodecError, BodyMismatch: It cannot be published.
    """
    message = deepcopy(topic.checked(outgoing(body, options)))
    draft(message, "", 0)
    transaction.on_commit(partial(topic.publish_sync, message), using=using)
