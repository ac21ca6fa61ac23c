"""Groups and topics by name; an unknown one is an error that names the other namespaces."""

from rqretry.admin.views import GroupInfo, Stats
from rqretry.cli.session import elsewhere
from rqretry.client import Client
from rqretry.core.errors import GroupNotFound, TopicNotFound


def find_group(client: Client, name: str) -> GroupInfo:
    """A group of the namespace. Raises GroupNotFound."""
    try:
        return client.admin.group(name)
    except GroupNotFound as error:
        raise GroupNotFound(f"{error}{elsewhere(client)}") from None


def read_stats(client: Client, topic: str | None) -> Stats:
    """The figures of one topic or all. Raises TopicNotFound."""
    try:
        return client.admin.stats(topic)
    except TopicNotFound as error:
        raise TopicNotFound(f"{error}{elsewhere(client)}") from None
