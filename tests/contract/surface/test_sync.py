"""What publishes with asyncio publishes without it under the same name and `_sync`."""

import inspect
from typing import Any

import pytest

from rqretry import App, InvalidArgument
from rqretry.consumer.task import Task
from rqretry.consumer.typed_topic import Topic
from tests.contract.integration.harness import Lab


@pytest.mark.parametrize(
    ("kind", "verbs"),
    [(App, {"publish", "publish_many"}), (Topic, {"publish", "publish_many"}), (Task, {"send"})],
)
def test_each_verb_that_publishes_has_a_sync_twin_with_the_same_arguments(
    kind: type, verbs: set[str]
) -> None:
    found = {name for name in dir(kind) if hasattr(kind, f"{name}_sync")}
    others = {name for name in dir(kind) if name.startswith(("publish", "send"))} - found

    assert found == verbs
    assert others == {f"{name}_sync" for name in verbs}
    for name in verbs:
        one, other = (inspect.signature(getattr(kind, n)) for n in (name, f"{name}_sync"))
        assert one.parameters == other.parameters


def test_an_app_and_a_topic_publish_without_asyncio(lab: Lab) -> None:
    app = lab.app()
    topic = app.topic("t", body=dict[str, int])

    ids = [
        app.publish_sync("t", {"n": 1}, tag="a"),
        *app.publish_many_sync("t", [{"n": 2}]),
        topic.publish_sync({"n": 3}, keys="k", id="mine"),
        *topic.publish_many_sync([{"n": 4}, {"n": 5}]),
    ]
    again = topic.publish_sync({"n": 3}, keys="k", id="mine")

    messages: list[Any] = [app.client.admin.message(id_) for id_ in ids]
    assert [message.body for message in messages] == [{"n": n} for n in range(1, 6)]
    assert (messages[0].tag, messages[2].keys) == ("a", ("k",))
    assert (again, again.duplicate) == ("mine", True)
    with pytest.raises(InvalidArgument, match="dealy"):
        topic.publish_sync({"n": 6}, dealy=1)  # type: ignore[call-arg] # that is tested
    app.client.close()
