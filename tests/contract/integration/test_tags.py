"""Tags through the public API: what a subscription does not take is counted and not delivered."""

from typing import Any

import pytest

from rqretry import App, InvalidArgument, Message, MessageNotFound, OutgoingMessage
from rqretry.admin.views import GroupState
from tests.contract.integration.harness import Lab, Seen, counted, until


async def test_a_group_gets_only_the_tags_it_takes_and_the_rest_is_counted(lab: Lab) -> None:
    app, paid, every = lab.app(), Seen(), Seen()
    app.consumer("orders", group="ship", tags=" paid ||refunded ")(paid.add)
    app.consumer("orders", group="audit")(every.add)

    async with lab.working(app):
        messages = [OutgoingMessage(body=t, tag=t) for t in ("paid", "open", "refunded")]
        await app.publish_many("orders", [*messages, "none"])
        await paid.count(2)
        await every.count(4)
        ship = await counted(lab, "ship", succeed=2, filtered=2)
        audit = await counted(lab, "audit", succeed=4)

    assert sorted(paid.bodies) == ["paid", "refunded"]
    assert (ship.tags, ship.filtered) == ("paid || refunded", 2)
    assert (audit.tags, audit.filtered) == ("*", 0)
    assert lab.client().admin.stats("orders").filtered == 2


def test_a_tag_that_looks_like_several_is_warned_of(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    client = lab.client()
    client.publish("orders", 1)
    client.simple_consumer("orders", group="one", create_group=True, tags="a || b").receive(wait=0)
    assert caplog.text == ""
    client.simple_consumer("orders", group="two", create_group=True, tags="a,b").receive(wait=0)
    assert "takes tag 'a,b', which is one tag" in caplog.text
    assert "write 'a || b'" in caplog.text


async def test_what_no_group_takes_is_accepted_and_not_stored(lab: Lab) -> None:
    client = lab.client()
    client.admin.create_topic("orders", partitions=3)
    client.simple_consumer("orders", group="ship", create_group=True, tags="paid")

    ids = client.publish_many("orders", [OutgoingMessage(body=n, tag="open") for n in range(9)])

    assert len(ids) == 9
    (topic,) = client.admin.stats("orders").topics
    assert (topic.stored, topic.groups[0].filtered, topic.groups[0].ready) == (0, 9, 0)
    with pytest.raises(MessageNotFound):
        client.admin.message(ids[0])


async def test_a_producer_that_knew_the_old_tags_follows_the_new_ones(lab: Lab) -> None:
    producer, other = lab.client(), lab.client()
    producer.admin.create_topic("orders")
    consumer = other.simple_consumer("orders", group="ship", create_group=True, tags="paid")
    producer.publish("orders", 1, tag="paid")

    other.simple_consumer("orders", group="ship", tags="open")
    producer.publish("orders", 2, tag="paid")
    producer.publish("orders", 3, tag="open")

    assert [message.body for message in consumer.receive(wait=1)] == [1, 3]


async def test_a_start_that_names_no_tags_changes_nothing_and_a_star_takes_everything(
    lab: Lab,
) -> None:
    client = lab.client()
    client.admin.create_topic("orders")

    def taken(**settings: Any) -> str:
        client.simple_consumer("orders", group="ship", create_group=True, **settings)
        return lab.stats("ship").tags

    assert taken() == "*"
    assert taken(tags="b || a") == "a || b"
    assert taken() == "a || b"
    assert taken(tags="*") == "*"


async def test_tags_are_of_a_group_and_a_topic(lab: Lab) -> None:
    app = lab.app()

    @app.consumer("orders", group="ship", tags="paid")
    async def ship(message: Message[Any]) -> None:
        pass

    @app.consumer("returns", group="ship")
    async def take_back(message: Message[Any]) -> None:
        pass

    async with lab.working(app):
        assert (lab.stats("ship", "orders").tags, lab.stats("ship", "returns").tags) == (
            "paid",
            "*",
        )


async def test_a_group_that_left_and_comes_back_takes_everything_again(lab: Lab) -> None:
    client = lab.client()
    client.admin.create_topic("orders")
    client.simple_consumer("orders", group="ship", create_group=True, tags="paid")
    client.admin.unsubscribe("ship", "orders")
    client.simple_consumer("orders", group="ship")
    assert lab.stats("ship").tags == "*"


async def test_a_delayed_message_is_given_to_who_takes_it_when_it_is_due(lab: Lab) -> None:
    client = lab.client()
    client.admin.create_topic("orders")
    consumer = client.simple_consumer("orders", group="ship", create_group=True, tags="open")
    client.publish("orders", "never", tag="open", delay="30ms")  # due first: nobody looks later
    client.publish("orders", "early", tag="paid", delay="30ms")
    client.simple_consumer("orders", group="ship", tags="paid")

    assert [message.body for message in consumer.receive(wait=5)] == ["early"]
    await until(lambda: lab.stats("ship").filtered == 1)


async def test_a_delayed_message_with_a_tag_can_be_recalled(lab: Lab) -> None:
    client = lab.client()
    client.admin.create_topic("orders")
    client.simple_consumer("orders", group="ship", create_group=True, tags="open")
    sent = client.publish("orders", 1, tag="paid", delay="1h")

    (state,) = client.admin.message(sent).states
    assert state.state == "scheduled"
    assert client.recall(sent)
    (topic,) = client.admin.stats("orders").topics
    assert (topic.scheduled, topic.stored) == (0, 0)


async def test_a_message_says_which_groups_do_not_take_it(lab: Lab) -> None:
    client = lab.client()
    client.admin.create_topic("orders")
    client.simple_consumer("orders", group="ship", create_group=True, tags="paid")
    client.simple_consumer("orders", group="audit", create_group=True)
    tagged = client.publish("orders", 1, tag="open")
    plain = client.publish("orders", 2)

    def ship(id_: str) -> GroupState:
        (state,) = [s for s in client.admin.message(id_).states if s.group == "ship"]
        return state

    assert ship(tagged).state == ship(plain).state == "filtered"
    assert ship(tagged).explain == "not for this group, which takes paid: its tag is open"
    assert ship(plain).explain == "not for this group, which takes paid: it has no tag"
    assert client.admin.explain(tagged)["audit"].startswith("ready")


@pytest.mark.parametrize("bad", ["", "a | b", "a ||", "a b", "|| b", "a || *", 5, "x" * 129])
def test_tags_that_cannot_be_meant_are_refused_before_anything_is_written(bad: Any) -> None:
    app = App("redis://localhost")
    with pytest.raises(InvalidArgument, match=r"^tag"):
        app.consumer("orders", group="ship", tags=bad)(print)
