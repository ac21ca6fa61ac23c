"""A bulk has two calls on their way; for that nothing is lost, doubled or out of order."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rqretry import AsyncClient, Client, MessageId, OutgoingMessage, PublishError
from rqretry.core.parts import parts_of
from tests.contract.integration.harness import NAMESPACE, Lab, until
from tests.support.faults.proxy import FaultProxy, proxied
from tests.support.faults.rules import Fault, Rule, always

BACKLOG = "rqretry:test:{t:0}:backlog"
MANY = 1800
"""Four calls."""

BARE = list(range(MANY))
NAMED = [OutgoingMessage(body=n, id=f"m{n}") for n in range(MANY)]

Publish = Callable[[list[Any]], Awaitable[list[MessageId]]]


def stored(lab: Lab) -> list[str]:
    """The ids that wait for the first group, in their order."""
    return [id_.decode() for id_ in lab.redis.lrange(BACKLOG, 0, -1)]


async def publish_many(
    lab: Lab, kind: str, rules: list[Rule], items: list[Any] | None = None
) -> tuple[list[str], FaultProxy]:
    """Publish through a proxy that strikes from the first call on."""
    items = BARE if items is None else items
    async with proxied(lab.server) as proxy:
        if kind == "async":
            async with AsyncClient(proxy.url, namespace=NAMESPACE) as client:
                await client.publish_many("t", [])
                proxy.rules = rules
                return [str(id_) for id_ in await client.publish_many("t", items)], proxy
        with Client(proxy.url, namespace=NAMESPACE) as sync:
            await asyncio.to_thread(sync.publish_many, "t", [])
            proxy.rules = rules
            return [str(i) for i in await asyncio.to_thread(sync.publish_many, "t", items)], proxy


@pytest.mark.parametrize("kind", ["async", "sync"])
@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize(
    "fault",
    [
        Fault.DROP_REQUEST,
        Fault.DROP_REPLY,
        Fault.CUT_REQUEST,
        Fault.CUT_REPLY,
        Fault.RESET,
        Fault.HALF_CLOSE,
        Fault.REPLAY,
    ],
)
@pytest.mark.parametrize("items", [BARE, NAMED], ids=["bare", "named"])
async def test_a_bulk_is_stored_once_and_in_order_whatever_happens_to_a_call(
    lab: Lab, items: list[Any], fault: Fault, nth: int, kind: str
) -> None:
    rules = [Rule(fault, "publish", nth=nth, amount=5000)]
    ids, proxy = await publish_many(lab, kind, rules, items)

    assert proxy.struck == [("publish", fault)]
    assert len(set(ids)) == MANY
    assert stored(lab) == ids


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_bulk_goes_on_where_every_third_reply_is_lost(lab: Lab, kind: str) -> None:
    ids, _ = await publish_many(lab, kind, [Rule(Fault.DROP_REPLY, "publish", nth=2, every=3)])
    assert stored(lab) == ids


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_bulk_finds_its_script_again_after_the_server_forgot_it(
    lab: Lab, kind: str
) -> None:
    client = lab.client()
    client.publish_many("t", [])
    lab.redis.script_flush()
    ids, _ = await publish_many(lab, kind, [])
    assert stored(lab) == ids


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_what_does_not_fit_is_refused_call_by_call_and_the_rest_keeps_its_order(
    lab: Lab, kind: str
) -> None:
    client = lab.client()
    client.admin.create_topic("t")
    client.admin.set_topic("t", max_messages=900)

    with pytest.raises(PublishError) as caught:
        await publish_many(lab, kind, [])

    error = caught.value
    assert (len(error.done), len(error.failed), error.ambiguous) == (860, 940, ())
    assert stored(lab) == list(error.done)


@pytest.mark.parametrize("kind", ["async", "sync"])
@pytest.mark.parametrize("known", [slice(0, 1), slice(500, 900, 7), slice(1799, 1800), slice(None)])
async def test_a_bulk_of_which_some_is_known_adds_the_rest_in_order(
    lab: Lab, known: slice, kind: str
) -> None:
    client = lab.client()
    first = [str(id_) for id_ in client.publish_many("t", NAMED[known])]

    ids, _ = await publish_many(lab, kind, [], NAMED)

    assert stored(lab) == [*first, *(id_ for id_ in ids if id_ not in set(first))]
    assert [id_ for id_ in ids if id_ in set(first)] == first
    assert ids == [item.id for item in NAMED]


async def test_the_next_call_is_sent_before_the_one_in_front_is_answered(lab: Lab) -> None:
    async with proxied(lab.server) as proxy, AsyncClient(proxy.url, namespace=NAMESPACE) as client:
        await client.publish_many("t", [])
        proxy.rules = [Rule(Fault.ONE_WAY, "publish")]
        task = asyncio.create_task(client.publish_many("t", range(MANY)))
        await seen(proxy, 2)
        proxy.cut()
        ids = await task

    assert stored(lab) == [str(id_) for id_ in ids]


async def test_a_bulk_that_is_cancelled_leaves_nothing_to_the_next_one(lab: Lab) -> None:
    async with proxied(lab.server) as proxy, AsyncClient(proxy.url, namespace=NAMESPACE) as client:
        await client.publish_many("t", [])
        proxy.rules = [Rule(Fault.ONE_WAY, "publish")]
        task = asyncio.create_task(client.publish_many("t", range(MANY)))
        await seen(proxy, 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        before = len(stored(lab))
        ids = [str(id_) for id_ in await client.publish_many("t", range(MANY))]

    assert before in {0, 470, 940}
    assert [id_ for id_ in stored(lab) if id_ in set(ids)] == ids


async def test_both_calls_of_a_bulk_that_were_lost_can_be_repeated_by_their_ids(lab: Lab) -> None:
    async with proxied(lab.server) as proxy, AsyncClient(proxy.url, namespace=NAMESPACE) as client:
        await client.publish_many("t", [])
        parts_of(client).store.repeat_seconds = 0.1
        proxy.rules = always(Fault.DROP_REPLY, "publish")
        with pytest.raises(PublishError) as caught:
            await client.publish_many("t", range(900))
        proxy.rules = []
        error = caught.value
        assert (len(error.done), len(error.failed), len(error.ambiguous)) == (0, 0, 900)
        again = [OutgoingMessage(body=n, id=id_) for n, id_ in enumerate(error.ambiguous)]
        await client.publish_many("t", again)

    assert stored(lab) == list(error.ambiguous)


async def test_bulks_and_single_publishes_go_side_by_side(lab: Lab) -> None:
    app = lab.app()
    bulks, singles = await asyncio.gather(
        asyncio.gather(*(app.publish_many("t", range(MANY)) for _ in range(3))),
        asyncio.gather(*(app.publish("t", n) for n in range(50))),
    )

    found = stored(lab)
    assert len(found) == len(set(found)) == 3 * MANY + 50
    assert set(found) == {*map(str, singles), *(str(id_) for bulk in bulks for id_ in bulk)}
    places = {id_: place for place, id_ in enumerate(found)}
    for bulk in bulks:
        assert sorted(places[str(id_)] for id_ in bulk) == [places[str(id_)] for id_ in bulk]


async def seen(proxy: FaultProxy, calls: int) -> None:
    """Wait until the proxy has seen so many calls that publish."""
    await until(lambda: proxy.seen["publish"] >= calls)
