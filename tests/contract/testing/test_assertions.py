"""What a lab says of a message, and how it says that a test is wrong."""

import re

import pytest
from redis import Redis

from rqretry import App, ConfigError, InvalidArgument, Message, MessageNotFound
from rqretry.testing import Lab
from rqretry.testing.embedded_redis import EmbeddedRedis
from rqretry.testing.history import matches, parse


@pytest.mark.parametrize(
    ("path", "fits"),
    [
        ("ready inflight committed", True),
        ("...", True),
        ("ready ... committed", True),
        ("ready … inflight … committed …", True),
        ("... inflight ...", True),
        ("ready inflight ... committed", True),
        ("ready inflight", False),
        ("inflight committed", False),
        ("ready ... dead", False),
        ("... inflight", False),
        ("ready ... inflight ... inflight ... committed", False),
    ],
)
def test_three_dots_stand_for_any_states(path: str, fits: bool) -> None:
    assert matches(parse(path), ["ready", "inflight", "committed"]) is fits


@pytest.mark.parametrize(
    ("path", "shown"),
    [("ready infligth", "path 'infligth' is not a state"), (" ", "path: it is empty")],
)
def test_a_path_that_cannot_be_meant_is_refused(path: str, shown: str) -> None:
    with pytest.raises(InvalidArgument, match=shown):
        parse(path)


def test_a_wrong_path_is_reported_line_by_line(lab: Lab) -> None:
    app = lab.app(App())

    @app.consumer("orders", group="billing")
    def bill(message: Message[int]) -> None:
        if message.attempt == 1:
            raise ValueError("no money")

    order = lab.publish("orders", 1)
    lab.advance("1m")
    with pytest.raises(AssertionError) as raised:
        lab.assert_path(order, "ready inflight committed")
    lines = [re.sub(" {2,}", "  ", line) for line in str(raised.value).splitlines()]
    headline = f"message {order} of topic orders, group billing: expected the path"
    assert lines == [
        f"{headline} 'ready inflight committed'",
        "its path was:",
        "  0 s  ready  publish",
        "  0 s  inflight  lease, attempt 1",
        "  0 s  waiting_retry  fail, attempt 1, due at 10 s: ValueError: no money",
        "  10 s  ready  promote",
        "  10 s  inflight  lease, attempt 2",
        "  10 s  committed  succeed, attempt 2",
    ]
    with pytest.raises(AssertionError, match="expected dead, it is committed\nits path was"):
        lab.assert_dead(order)


def test_another_reason_of_death_is_reported(lab: Lab) -> None:
    app = lab.app(App())

    @app.consumer("orders", group="billing", max_retries=0)
    async def bill(message: Message[int]) -> None:
        raise ValueError("no money")

    order = lab.publish("orders", 1)
    lab.run_until_idle()
    with pytest.raises(AssertionError, match="expected reason 'no card'\nits path was"):
        lab.assert_dead(order, reason="no card")
    with pytest.raises(AssertionError, match="expected committed, it is dead"):
        lab.assert_committed(order)


def test_with_two_groups_one_must_be_named(lab: Lab) -> None:
    app = lab.app(App())
    for group in ("billing", "mail"):

        @app.consumer("orders", group=group)
        async def handle(message: Message[int]) -> None: ...

    order = lab.publish("orders", 1)
    rule = "group None must be one of the groups of topic 'orders': billing, mail"
    with pytest.raises(InvalidArgument, match=rule):
        lab.history(order)
    with pytest.raises(InvalidArgument, match="group 'post' must be one of"):
        lab.assert_dead(order, group="post")
    assert lab.history(order, group="mail") == ["ready"]


def test_an_unknown_message_is_reported(lab: Lab) -> None:
    with pytest.raises(MessageNotFound, match="no message 'abc' was published in this lab"):
        lab.history("abc")


def test_ids_and_order_are_the_same_in_every_lab(lab_redis: Lab, lab_fakeredis: Lab) -> None:
    runs = []
    for lab in (lab_redis, lab_fakeredis):
        app = lab.app(App())
        seen: list[tuple[str, int, int]] = []

        @app.topic("orders", partitions=4).consumer(group="billing")
        async def bill(message: Message[int], seen=seen) -> bool:  # type: ignore[no-untyped-def]
            seen.append((message.id, message.body, message.attempt))
            return message.attempt > 1

        lab.publish_many("orders", list(range(20)))
        lab.advance("1m")
        runs.append(seen)
    assert runs[0] == runs[1]
    assert len(runs[0]) == 40


def test_an_app_can_be_in_one_lab_only(lab: Lab) -> None:
    app = lab.app(App())
    with pytest.raises(ConfigError, match="is in a lab already"), Lab(app, "fakeredis"):
        pass


def test_a_simple_consumer_of_the_lab_lives_in_virtual_time(lab: Lab) -> None:
    lab.admin.create_topic("orders")
    consumer = lab.client.simple_consumer("orders", group="billing", create_group=True)
    order = lab.publish("orders", 1)
    (first,) = consumer.receive(invisible_duration="10s", wait=0)
    assert consumer.receive(wait=0) == []
    lab.advance("10s")
    (second,) = consumer.receive(wait=0)
    assert (first.id, first.attempt, second.id, second.attempt) == (order, 1, order, 2)
    with pytest.raises(InvalidArgument, match="time stands still while you wait; pass wait=0"):
        consumer.receive(wait=20)
    consumer.ack(second)
    lab.assert_committed(order)


def test_a_real_server_has_a_url_and_fakeredis_has_none(lab_redis: Lab, lab_fakeredis: Lab) -> None:
    assert lab_redis.url.startswith("unix://")
    assert (lab_redis.server, lab_fakeredis.server) == ("redis", "fakeredis")
    with pytest.raises(ConfigError, match="fakeredis has no URL"):
        _ = lab_fakeredis.url


def test_a_lab_can_be_made_without_the_fixture() -> None:
    with Lab(server="redis") as lab:
        order = lab.publish("orders", 1)
        assert lab.history(order) == ["ready"]
    with pytest.raises(InvalidArgument, match='server \'valkey\' must be "redis" or "fakeredis"'):
        Lab(server="valkey")


def test_a_lab_leaves_nothing_behind() -> None:
    with EmbeddedRedis() as server, Redis.from_url(server.url) as client:
        with Lab(server=server) as lab:
            lab.publish("orders", 1)
            assert client.keys("*")
        assert client.keys("*") == []
