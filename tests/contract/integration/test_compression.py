"""A topic that compresses: whoever publishes, reads or moves its messages sees them plain."""

import asyncio
import sys
from typing import Any

import pyarrow as pa
import pytest

from rqretry import Client, InvalidArgument, Message, OutgoingMessage, RetryPolicy
from rqretry.core import compression
from rqretry.core.errors import RqretryError
from rqretry.spark.options import read_options
from rqretry.spark.rows import Mapping
from rqretry.spark.sink import publish_batches
from rqretry.spark.task_context import Task
from tests.contract.integration.harness import NAMESPACE, Lab, Seen, counted

TEXT = "one message of very many that are much alike. " * 400
BODIES = f"rqretry:{NAMESPACE}:{{t:0}}:bodies"


def stored(lab: Lab) -> int:
    """What the largest stored message takes."""
    return max(map(len, lab.redis.hvals(BODIES)), default=0)


def refuse(place: object, error: RqretryError) -> None:
    """No row is bad."""
    raise AssertionError(f"row {place}: {error}")


def compressing(lab: Lab, least: int | None = 4096) -> Client:
    """A client whose topic compresses."""
    client = lab.client()
    client.admin.create_topic("t")
    assert client.admin.set_topic("t", compress_from=least).compress_from == least
    return client


async def test_every_way_to_publish_compresses_and_every_way_to_read_does_not_show_it(
    lab: Lab,
) -> None:
    client, app, seen = compressing(lab), lab.app(), Seen()
    body = {"text": TEXT}

    @app.consumer("t", group="g", policy=RetryPolicy.ladder("10ms", max_retries=1))
    async def handle(message: Message[Any]) -> bool:
        seen.add(message)
        return message.tag != "fails"

    ids = [client.publish("t", body), *client.publish_many("t", [body] * 3), client.publish(
        "t", body, id="mine", tag="fails", headers={"a": "b"}, keys="k"
    )]  # fmt: skip
    ids.append(client.publish("t", body, delay=0.01))
    with client.transaction("t") as tx:
        ids.append(tx.publish(body))
    ids.append(await app.publish("t", OutgoingMessage(body=body, message_group="x")))
    assert 0 < stored(lab) < len(TEXT) / 10
    ratio = client.admin.stats("t").topics[0].compression_ratio
    assert ratio is not None
    assert ratio > 10
    assert client.publish("t", body, id="mine", tag="fails", headers={"a": "b"}, keys="k").duplicate
    with pytest.raises(InvalidArgument, match="with other content"):
        client.publish("t", {"text": TEXT + "!"}, id="mine", tag="fails")

    async with lab.working(app):
        await counted(lab, "g", succeed=len(ids) - 1, dead=1)
        assert all(found == body for found in seen.bodies)
        assert {message.id for message in seen.messages} == set(ids)
    (dead_letter,) = client.admin.dead_letters("g", bodies=True)
    assert (dead_letter.body, client.admin.message("mine").body) == (body, body)
    assert stored(lab) == len(dead_letter.raw) < len(TEXT) / 10
    assert client.admin.redrive("g", all=True) == 1
    assert stored(lab) == len(dead_letter.raw)
    late = client.simple_consumer("t", group="late", create_group=True, start="earliest")
    (again,) = late.receive(wait=0)
    assert (again.id, again.body, again.tag, again.headers["a"]) == ("mine", body, "fails", "b")


async def test_a_running_publisher_learns_of_it_with_its_next_call(lab: Lab) -> None:
    publisher, operator = lab.client(), compressing(lab, None)
    publisher.simple_consumer("t", group="g", create_group=True)
    publisher.publish("t", "small")
    operator.admin.set_topic("t", compress_from=1024)
    publisher.publish("t", TEXT)
    assert stored(lab) < len(TEXT) / 10
    operator.admin.set_topic("t", compress_from=0)
    publisher.publish_many("t", [TEXT, TEXT])  # as it was encoded
    assert stored(lab) < len(TEXT) / 10
    publisher.publish("t", TEXT)
    assert stored(lab) > len(TEXT)


async def test_what_cannot_be_unpacked_is_dead_with_the_reason_and_not_lost(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, app, seen = compressing(lab), lab.app(), Seen()

    @app.consumer("t", group="g")
    async def handle(message: Message[Any]) -> None:
        seen.add(message)

    id_ = client.publish("t", TEXT)
    with monkeypatch.context() as here:
        here.setitem(sys.modules, "zstandard", None)
        compression._zstandard.cache_clear()
        async with lab.working(app):
            client.publish("t", "small")
            await counted(lab, "g", succeed=1, dead=1)
        (dead_letter,) = client.admin.dead_letters("g", bodies=True)
        assert (dead_letter.cause, dead_letter.body) == ("undecodable", None)
        assert "install rqretry[zstd]" in dead_letter.error
    compression._zstandard.cache_clear()
    assert client.admin.redrive("g", all=True) == 1
    async with lab.working(app):
        await seen.count(2)
    assert (seen.messages[-1].id, seen.bodies) == (id_, ["small", TEXT])


@pytest.mark.parametrize("id_column", [None, "n"], ids=["lanes", "ids"])
async def test_a_task_that_runs_again_is_the_same_whatever_the_topic_says_now(
    lab: Lab, id_column: str | None
) -> None:
    client = compressing(lab, None)
    options = read_options({"url": lab.url, "namespace": NAMESPACE, "topic": "t"})
    mapping = Mapping(None, False, (("id", id_column),) if id_column else ())
    batch = pa.RecordBatch.from_pydict({"n": [f"m{n}" for n in range(9)], "text": [TEXT] * 9})
    for least, new in ((1024, 9), (0, 0)):
        client.admin.set_topic("t", compress_from=least)
        totals = await asyncio.to_thread(
            publish_batches, options, mapping, Task("job", 0, replayable=True), [batch], refuse
        )
        assert (totals.sent, totals.known) == (new, 9 - new)
        assert stored(lab) < len(TEXT) / 10
    group = client.simple_consumer("t", group="g", create_group=True)
    assert {m.body["text"] for m in group.receive(max_messages=9, wait=0)} == {TEXT}


def test_a_size_that_cannot_be_is_refused(lab: Lab) -> None:
    client = compressing(lab)
    wrong: Any
    for wrong in (-1, 4 * 1024 * 1024 + 1, "4096", True):
        with pytest.raises(InvalidArgument, match="compress_from"):
            client.admin.set_topic("t", compress_from=wrong)
    assert client.admin.stats("t").topics[0].compress_from == 4096
