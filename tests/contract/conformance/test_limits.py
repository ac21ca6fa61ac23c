"""Every limit at its limit and one past it; past it nothing is stored."""

from typing import Any

import pytest

from rqretry import App, Client, InvalidArgument, MessageTooLarge, OutgoingMessage
from tests.contract.integration.harness import NAMESPACE
from tests.contract.integration.harness import Lab as LiveLab

MIB_4 = 4 * 1024 * 1024
KIB_16 = 16 * 1024
CONTROLS = [*map(chr, (0, 7, 9, 10, 13, 27, 31, 32, 0x7F, 0x80, 0x9F, 0xA0, 0x200B, 0x2028))]
NAME = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"

OPTIONS: list[tuple[str, list[dict[str, Any]], list[dict[str, Any]]]] = [
    (
        "headers",
        [{"headers": {f"h{n:03}": "" for n in range(128)}}, {"headers": {}}],
        [{"headers": {f"h{n:03}": "" for n in range(129)}}],
    ),
    (
        "headers together",
        [{"headers": {"ab": "x" * (KIB_16 - 2)}}, {"headers": {"é": "é" * (KIB_16 // 2 - 1)}}],
        [
            {"headers": {"ab": "x" * (KIB_16 - 1)}},
            {"headers": {"é": "é" * (KIB_16 // 2 - 1) + "x"}},
        ],
    ),
    (
        "header name",
        [{"headers": {"x": "1"}}, {"headers": {"x" * 128: "1"}}],
        [{"headers": {"": "1"}}, {"headers": {"x" * 129: "1"}}],
    ),
    (
        "message group",
        [{"message_group": "x"}, {"message_group": "x" * 63}, {"message_group": "é" * 31 + "x"}],
        [{"message_group": ""}, {"message_group": "x" * 64}, {"message_group": "é" * 32}],
    ),
    (
        "tag",
        [{"tag": "x"}, {"tag": "заказ"}],
        [{"tag": ""}, {"tag": "a|b"}, {"tag": "|"}, {"tag": "a||b"}],
    ),
    ("blanks of a tag", [], [{"tag": f"a{one}b"} for one in CONTROLS]),
    ("blanks of a key", [], [{"keys": f"a{one}b"} for one in CONTROLS]),
    ("blanks of a message group", [], [{"message_group": f"a{one}b"} for one in CONTROLS]),
    (
        "key",
        [{"keys": "x"}, {"keys": "x" * 128}, {"keys": ["x" * 128]}],
        [{"keys": ""}, {"keys": "x" * 129}, {"keys": ["x", "x" * 129]}, {"keys": [""]}],
    ),
    (
        "keys",
        [{"keys": [f"k{n}" for n in range(16)]}, {"keys": []}],
        [{"keys": [f"k{n}" for n in range(17)]}],
    ),
    (
        "message id",
        [{"id": "x"}, {"id": "y" * 128}, {"id": NAME + ".:"}],
        [{"id": ""}, {"id": "y" * 129}, *({"id": f"a{one}b"} for one in "/ {}%*é\n")],
    ),
    (
        "delay",
        [{"delay": "40d"}, {"delay": 40 * 86_400}, {"delay": 0}],
        [{"delay": "40d1ms"}, {"delay": 40 * 86_400 + 0.001}, {"delay": -0.001}],
    ),
]
BODIES: list[tuple[str, list[Any], list[Any]]] = [
    ("raw", [b"", b"x" * MIB_4], [b"x" * (MIB_4 + 1)]),
    # What counts is the size after encoding; text of that length takes five bytes more.
    ("text", ["", "x" * (MIB_4 - 5)], ["x" * (MIB_4 - 4)]),
    ("list", [["x" * (MIB_4 - 6)]], [["x" * (MIB_4 - 5)]]),
]


class Publishers:
    """Every way to publish a message."""

    def __init__(self, live: LiveLab) -> None:
        self.app, self.client, self._live = live.app(), live.client(), live

    async def all_refuse(self, body: Any, options: dict[str, Any], error: type[Exception]) -> None:
        """None of them takes it, and nothing is written."""
        many = [0, OutgoingMessage(body=body, **options)]
        with pytest.raises(error):
            self.client.publish("t", body, **options)
        with pytest.raises(error):
            self.client.publish_many("t", many)
        with pytest.raises(error):
            await self.app.publish("t", body, **options)
        with pytest.raises(error):
            await self.app.publish_many("t", many)
        assert self._live.redis.dbsize() == 0


@pytest.mark.parametrize(("good", "bad"), [row[1:] for row in OPTIONS], ids=[r[0] for r in OPTIONS])
async def test_options_of_a_message_at_their_limits(
    live: LiveLab, good: list[dict[str, Any]], bad: list[dict[str, Any]]
) -> None:
    publishers = Publishers(live)
    for options in bad:
        await publishers.all_refuse(1, options, InvalidArgument)
    for options in good:
        publishers.client.publish("t", 1, **options)
        await publishers.app.publish("u", 1, **options)
    if good:
        stored = [topic.stored for topic in publishers.client.admin.stats().topics]
        assert stored == [len(good)] * 2


@pytest.mark.parametrize(("good", "bad"), [row[1:] for row in BODIES], ids=[r[0] for r in BODIES])
async def test_a_body_of_4_mib_is_stored_and_one_byte_more_is_not(
    live: LiveLab, good: list[Any], bad: list[Any]
) -> None:
    publishers, client = Publishers(live), live.client()
    for body in bad:
        await publishers.all_refuse(body, {}, MessageTooLarge)
    client.admin.create_topic("t")
    consumer = client.simple_consumer("t", group="g", create_group=True)
    for body in good:
        client.publish("t", body)
        (message,) = consumer.receive(wait=1)
        assert message.body == body
        consumer.ack(message)


async def test_names_at_their_limits(live: LiveLab) -> None:
    client, app = live.client(), live.app()
    bad = ["", ".", "..", ".a", *(f"a{one}b" for one in "/ {}%*é\n:|")]
    for name in [*bad, "x" * 128]:
        with pytest.raises(InvalidArgument, match=r"^topic "):
            client.publish(name, 1)
        with pytest.raises(InvalidArgument, match=r"^topic "):
            await app.publish(name, 1)
        with pytest.raises(InvalidArgument, match=r"^topic "):
            app.consumer(name, group="g")(print)
    for name in [*bad, "x" * 121]:
        with pytest.raises(InvalidArgument, match=r"^group "):
            app.consumer("t", group=name)(print)
        with pytest.raises(InvalidArgument, match=r"^group "):
            client.simple_consumer("t", group=name, create_group=True)
    for name in [*bad, "a.b", "x" * 64]:
        with pytest.raises(InvalidArgument, match=r"^namespace "):
            Client(live.url, namespace=name)
        with pytest.raises(InvalidArgument, match=r"^namespace "):
            App(live.url, namespace=name)
    assert live.redis.dbsize() == 0

    longest = ("a." + NAME * 2)[:127]
    client.publish(longest, 1)
    consumer = client.simple_consumer(longest, group=longest[:120], create_group=True)
    (message,) = consumer.receive(wait=1)
    consumer.ack(message)
    assert (message.topic, message.group) == (longest, longest[:120])
    for namespace in ("x", (NAME * 2)[1:64]):
        with Client(live.url, namespace=namespace) as other:
            other.publish("t", 1)
            assert other.admin.stats("t").backlog == 1
    assert NAMESPACE not in ("x", (NAME * 2)[1:64])


async def test_publish_many_takes_any_number_in_bounded_calls(live: LiveLab) -> None:
    client = live.client()
    assert client.publish_many("t", []) == []
    client.publish("t", 0)
    before = calls(live)
    ids = client.publish_many("t", range(2501))
    assert len(set(ids)) == 2501
    assert calls(live) - before == 6  # of 470 messages; 500 are the most
    before = calls(live)
    client.publish_many("t", [b"x" * 300_000] * 7)
    assert calls(live) - before == 3  # of 1 MiB at most
    assert client.admin.stats("t").topics[0].stored == 2509


def calls(live: LiveLab) -> int:
    """How many publish calls the topic's partition has answered: one history entry each."""
    return int(live.redis.xlen("rqretry:test:{t:0}:events"))
