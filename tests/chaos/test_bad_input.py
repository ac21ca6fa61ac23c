"""Bad input is refused before a byte is sent, counted at a proxy."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
from operator import methodcaller
from typing import Any, NamedTuple

import pytest
import redis

from rqretry import AsyncClient, Client, Message, OutgoingMessage
from rqretry.client import SimpleConsumer
from rqretry.core.errors import (
    InvalidArgument,
    InvalidReceiptHandle,
    MessageTooLarge,
    RqretryError,
    StoreUnavailable,
)
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.support.faults.proxy import FaultProxy

NAMESPACE = "test"
USER, PASSWORD = "canary", "canary-of-the-password"
SECRETS = {"secret": "canary-of-the-body"}
HEADERS = {"authorization": "canary-of-the-header"}
CANARY = "canary-of-the"
READING = {"HELLO", "AUTH", "CLIENT", "PING", "INFO", "TIME", "SELECT", "SCRIPT", "COMMAND"}
"""What a client that was just made may ask before it refuses something."""
MiB = 1 << 20


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


def cyclic() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


class Bad(NamedTuple):
    """One call that must be refused; its canaries must not be shown."""

    name: str
    call: Callable[[Any], Any]
    error: type[RqretryError] = InvalidArgument


def bad_topics() -> Iterator[Bad]:
    bad: list[Any] = [
        "", "a{b}", "a:b", "a b", "a\nb", "a\x00b", "*", "a?", "[a", "queu\u0451", "a\u200bb",
        "\u202eabc", "e\u0301", "a" * 128, None, 5, b"t", ["t"],
    ]  # fmt: skip
    for topic in bad:
        yield Bad(f"topic {topic!r:.20}", methodcaller("publish", topic, SECRETS))


def bad_options() -> Iterator[Bad]:
    table: dict[str, list[Any]] = {
        "id": ["", "i" * 129, "a/b", "a b", "a\n", "{x}", 7, b"x"],
        "headers": [
            {str(n): "" for n in range(129)}, {"big": "x" * (16 * 1024 + 1)}, {"a": 1},
            {"a\nb": "x"}, {"": "x"}, {"a": "\ud800"}, "text", [("a", "b")],
        ],
        "delay": [-1, math.nan, math.inf, "5 apples", True, 10**12, "", [1]],
        "delay_level": [0, -1, True, "1", 1.5],
        "deliver_at": [datetime(2030, 1, 1), datetime(9999, 1, 1), math.nan, "soon", True],  # noqa: DTZ001
        "message_group": ["", "g" * 64, "\u00e4" * 32, "a b", "a\x1b[1m", 5],
        "tag": ["", "a|b", "a b", "t" * 129, 5],
        "keys": ["", [""], ["k"] * 17, ["k" * 129], b"k", [5], 5],
        "durability": ["replica:0", "replica", "paper", 1, True],
        "dealy": [5],
    }  # fmt: skip
    for option, values in table.items():
        for value in values:
            given: dict[str, Any] = {"headers": HEADERS, option: value}
            yield Bad(f"{option}={value!r:.24}", methodcaller("publish", "t", SECRETS, **given))
    together: list[dict[str, Any]] = [
        {"delay": 1, "delay_level": 1},
        {"delay": 1, "deliver_at": 2_000_000_000},
        {"delay": 1, "message_group": "g"},
    ]
    for given in together:
        yield Bad(f"together {given}", methodcaller("publish", "t", SECRETS, **given))


def bad_bodies() -> Iterator[Bad]:
    bodies: dict[str, Any] = {
        "NaN": {**SECRETS, "n": math.nan}, "infinity": [math.inf], "half a surrogate": "\ud800",
        "a set": {**SECRETS, "s": {1}}, "an object": object(), "a number as a key": {1: 2},
        "a function": print, "depth 65": nested(65), "depth 100 000": nested(100_000),
        "itself": cyclic(), "many items": [0] * 100_001, "a complex": 1j,
    }  # fmt: skip
    for name, body in bodies.items():
        yield Bad(f"body {name}", methodcaller("publish", "t", body, headers=HEADERS), RqretryError)
        many = [{"good": 1}, OutgoingMessage(body=body), {"good": 2}]
        yield Bad(f"one of many {name}", methodcaller("publish_many", "t", many), RqretryError)
    for size in (4 * MiB + 1, 64 * MiB):
        for body in ("x" * size, b"x" * size):
            yield Bad(f"{size} {type(body)}", methodcaller("publish", "t", body), MessageTooLarge)


PUBLISHES = [*bad_topics(), *bad_options(), *bad_bodies()]


def bad_receives() -> Iterator[Bad]:
    for value in (0, -1, 10**6, True, "3", 1.5, None):
        yield Bad(f"max_messages={value!r}", methodcaller("receive", value, wait=0))
    for value in (0, -1, 0.001, 13 * 3600, math.nan, "x", True):
        yield Bad(f"invisible={value!r}", methodcaller("receive", invisible_duration=value, wait=0))
    for value in (-1, 10**9, math.nan, "x", True):
        yield Bad(f"wait={value!r}", methodcaller("receive", wait=value))


def bad_acks() -> Iterator[Bad]:
    for value in ("", "abc", "t/0/g/x/id", "t/-1/g/1/id", "t/0/g/1", "a/b/c/d/e/f"):
        yield Bad(f"ack {value!r}", methodcaller("ack", value), InvalidReceiptHandle)
        yield Bad(f"acks {value!r}", methodcaller("ack", [value]), InvalidReceiptHandle)
        yield Bad(
            f"change {value!r}",
            methodcaller("change_invisible_duration", value, 30),
            InvalidReceiptHandle,
        )
    for value in ("t/0/other/1/id", "other/0/g/1/id", "t/9/g/1/id"):
        yield Bad(f"foreign {value!r}", methodcaller("ack", value), InvalidReceiptHandle)
    for thing in (5, [5], [None]):
        yield Bad(f"ack {thing!r}", methodcaller("ack", thing))
    durations: list[Any] = [-1, 0.001, 13 * 3600, "soon", math.nan, True]
    for duration in durations:
        yield Bad(
            f"change to {duration!r}",
            methodcaller("change_invisible_duration", "t/0/g/1/id", duration),
        )


CONSUMES = [*bad_receives(), *bad_acks()]


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedRedis]:
    """A server with a user whose password must not be seen."""
    with EmbeddedRedis() as server:
        with redis.Redis(unix_socket_path=str(server.socket_path)) as client:
            client.execute_command(
                "ACL", "SETUSER", USER, "on", f">{PASSWORD}", "~*", "&*", "+@all"
            )
        yield server


@pytest.fixture(scope="module")
def proxy(server: EmbeddedRedis) -> Iterator[FaultProxy]:
    with FaultProxy(server, tcp=True) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def url(proxy: FaultProxy) -> str:
    return proxy.url.replace("redis://", f"redis://{USER}:{PASSWORD}@")


@pytest.fixture(scope="module")
def warm(url: str) -> Iterator[Client]:
    """A client that has published before: it has nothing left to ask."""
    with Client(url, namespace=NAMESPACE) as client:
        client.publish("t", "good", delay_level=1)
        client.publish_many("t", ["good", "good"])
        yield client


@pytest.fixture(scope="module")
def consumer(warm: Client) -> SimpleConsumer:
    """A consumer that has received before."""
    consumer = warm.simple_consumer("t", group="g", create_group=True)
    (message, *_) = consumer.receive(wait=5)
    assert isinstance(message, Message)
    return consumer


@pytest.fixture
async def warm_async(url: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(url, namespace=NAMESPACE) as client:
        await client.publish("t", "good", delay_level=1)
        yield client


def refused(bad: Bad, subject: Any) -> None:
    """The call raises one good sentence."""
    with pytest.raises(bad.error) as caught:
        bad.call(subject)
    check(caught.value)


def check(error: RqretryError) -> None:
    recorded = str(error)
    assert not isinstance(error, StoreUnavailable)
    assert 10 < len(recorded) < 1000
    assert "\n" not in recorded
    assert recorded.isascii() or recorded.isprintable()
    assert "Traceback" not in recorded
    assert CANARY not in recorded
    assert CANARY not in repr(error)


@pytest.mark.parametrize("bad", PUBLISHES, ids=lambda bad: bad.name)
def test_a_bad_publish_sends_nothing(bad: Bad, warm: Client, proxy: FaultProxy) -> None:
    before = proxy.bytes_up
    refused(bad, warm)
    assert proxy.bytes_up == before


async def test_bad_publishes_with_asyncio_send_nothing(
    warm_async: AsyncClient, proxy: FaultProxy
) -> None:
    for bad in PUBLISHES:
        before = proxy.bytes_up
        with pytest.raises(bad.error) as caught:
            await bad.call(warm_async)
        check(caught.value)
        await asyncio.sleep(0)  # whatever it would have sent later
        assert proxy.bytes_up == before, bad.name


@pytest.mark.parametrize("bad", CONSUMES, ids=lambda bad: bad.name)
def test_a_bad_receive_or_ack_sends_nothing(
    bad: Bad, consumer: SimpleConsumer, proxy: FaultProxy
) -> None:
    before = proxy.bytes_up
    refused(bad, consumer)
    assert proxy.bytes_up == before


def test_what_a_new_client_refuses_writes_nothing(url: str, proxy: FaultProxy) -> None:
    for bad in PUBLISHES[::7]:
        before = proxy.passed.copy()
        with Client(url, namespace="never-used") as client:
            refused(bad, client)
        assert set(proxy.passed - before) <= READING, bad.name


def test_the_good_ones_do_send(warm: Client, proxy: FaultProxy) -> None:
    before, published = proxy.bytes_up, proxy.passed["publish"]
    warm.publish("t", SECRETS, headers=HEADERS)
    assert proxy.bytes_up > before
    assert proxy.passed["publish"] == published + 1
