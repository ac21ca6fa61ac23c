"""Recall too late, topics that are not there, and options that do not go together."""

from collections.abc import Callable
from typing import Any

import pytest

from rqretry import (
    App,
    Client,
    InvalidArgument,
    Message,
    MessageNotFound,
    RetryPolicy,
    TopicNotFound,
)
from tests.contract.integration.harness import Lab

PARTITIONS = pytest.mark.parametrize("partitions", [1, 4])


@PARTITIONS
@pytest.mark.parametrize("id_", [None, "mine"])
@pytest.mark.parametrize("topic", [None, "t"])
def test_recall_of_what_was_delivered_is_too_late_there_or_gone(
    lab: Lab, partitions: int, id_: str | None, topic: str | None
) -> None:
    client = lab.client()
    client.admin.create_topic("t", partitions=partitions)
    client.admin.create_topic("other", partitions=partitions)
    consumer = client.simple_consumer("t", group="g", create_group=True)
    sent = client.publish("t", 1, id=id_, delay=0.01)
    (message,) = consumer.receive(wait=5)
    assert client.recall(sent, topic) is False
    consumer.ack(message)
    assert client.recall(sent, topic) is False
    assert lab.client().recall(sent, topic) is False


@PARTITIONS
def test_recall_of_what_was_recalled_purged_or_never_published_is_an_error(
    lab: Lab, partitions: int
) -> None:
    client = lab.client()
    client.admin.create_topic("t", partitions=partitions)
    client.simple_consumer("t", group="g", create_group=True)
    recalled, purged = client.publish("t", 1, delay=60), client.publish("t", 2, id="mine")
    assert client.recall(recalled) is True
    assert client.admin.purge("g", state="ready", all=True) == 1
    for id_ in (recalled, purged, "unknown", recalled[:-1] + "0"):
        with pytest.raises(MessageNotFound, match="was recalled or purged, never published here"):
            client.recall(id_)


@pytest.mark.parametrize("create_group", [True, False])
def test_a_topic_that_is_not_there_comes_with_what_to_do(lab: Lab, *, create_group: bool) -> None:
    client = lab.client()
    advice = r"publish to it first, or create it with admin.create_topic\('t'\)"
    with pytest.raises(TopicNotFound, match=f"no topic 't' .*{advice}"):
        client.simple_consumer("t", group="g", create_group=create_group)
    assert client.admin.groups() == []
    client.admin.create_topic("t")
    assert client.simple_consumer("t", group="g", create_group=True).receive(wait=0) == []


def handle(message: Message[Any]) -> None:
    """Nothing."""


async def awaited(message: Message[Any]) -> None:
    """Nothing."""


def declared(
    topic: str = "t", handler: Callable[..., Any] = handle, **options: Any
) -> Callable[[App, Client], Any]:
    """Declare a consumer."""
    return lambda app, _: app.consumer(topic, group="g", **options)(handler)


def simple(*topics: str, **options: Any) -> Callable[[App, Client], Any]:
    """Make a simple consumer."""
    return lambda _, client: client.simple_consumer(
        topics, group="new", create_group=True, **options
    )


def published(**options: Any) -> Callable[[App, Client], Any]:
    """Publish."""
    return lambda _, client: client.publish("t", 1, **options)


@pytest.mark.parametrize(
    "call",
    [
        declared(broadcast=True, ordered=True),
        declared(broadcast=True, start="earliest"),
        declared("%DLQ%old", broadcast=True),
        declared(ordered=True, policy=RetryPolicy.rocketmq()),
        declared(handler=awaited, process=True),
        simple("t", "%DLQ%old"),
        simple("%DLQ%old", ordered=True),
        simple("t", start="earliest", ordered=True),
        simple("t", start="earliest", tags="a"),
        published(delay=1, delay_level=3),
        published(delay=1, message_group="a"),
    ],
)
def test_options_that_do_not_go_together_are_one_kind_of_error(
    lab: Lab, call: Callable[[App, Client], Any]
) -> None:
    client = lab.client()
    client.admin.create_topic("t")
    client.simple_consumer("t", group="old", create_group=True)
    with pytest.raises(InvalidArgument):
        call(lab.app(), client)
    assert [group.name for group in client.admin.groups()] == ["old"]
