"""Publishing again: what was removed by hand, and what may have been stored."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from rqretry import (
    AmbiguousResult,
    App,
    AsyncClient,
    Message,
    OutgoingMessage,
    PublishError,
    StoreUnavailable,
    TransactionDecided,
)
from rqretry.core.consume_result import ConsumeResult
from rqretry.core.parts import parts_of
from tests.contract.integration.harness import NAMESPACE, Lab, Seen, counted
from tests.support.faults.proxy import proxied
from tests.support.faults.rules import Fault, always


def later(hours: int) -> datetime:
    return datetime.now(UTC) + timedelta(hours=hours)


async def test_what_was_recalled_or_purged_is_published_again_under_its_id(lab: Lab) -> None:
    app, seen = lab.app(), Seen()
    await reminded(app, seen)
    await app.publish("t", "at nine", id="reminder", deliver_at=later(9))
    assert lab.client().recall("reminder")
    again = await app.publish("t", "at ten", id="reminder", deliver_at=later(-1))
    assert not again.duplicate
    async with lab.working(app):
        await counted(lab, "g", fail=1)
        assert await app.admin.purge("g", all=True) == 1
        again = await app.publish("t", "at eleven", id="reminder")
        assert not again.duplicate
        await counted(lab, "g", fail=1, succeed=1)
    assert seen.bodies == ["at ten", "at eleven"]
    first, second = seen.messages
    assert second.fencing_token > first.fencing_token


async def reminded(app: App, seen: Seen) -> None:
    @app.consumer("t", group="g", max_retries=0)
    async def remind(message: Message[str]) -> ConsumeResult:
        seen.add(message)
        return ConsumeResult.FAILURE if message.body == "at ten" else ConsumeResult.SUCCESS


async def test_what_is_ambiguous_is_repeated_exactly_also_when_it_was_handled_meanwhile(
    lab: Lab,
) -> None:
    count = 3_000
    async with proxied(lab.server) as proxy, AsyncClient(proxy.url, namespace=NAMESPACE) as client:
        await client.publish("t", "warm")
        parts_of(client).store.repeat_seconds = 0.1
        proxy.rules = always(Fault.DROP_REPLY, "publish")
        with pytest.raises(PublishError) as caught:
            await client.publish_many("t", range(count))
        proxy.rules = []
        ids = caught.value.ambiguous
        app, handled = lab.app(), Counter[str]()
        note_each(app, handled)
        async with lab.working(app):
            await counted(lab, "g", succeed=stored(lab))
            again = [OutgoingMessage(body=n, id=id_) for n, id_ in enumerate(ids)]
            sent = await client.publish_many("t", again[::2])
            sent += await client.publish_many("t", again[1::2])
            await counted(lab, "g", succeed=stored(lab))
    assert stored(lab) == count + 1
    assert len(ids) == len(set(sent)) == count
    assert set(handled.values()) == {1}


def stored(lab: Lab) -> int:
    return int(lab.redis.hget("rqretry:test:{t:0}:counters", "publish:g"))


def note_each(app: App, handled: Counter[str]) -> None:
    @app.consumer("t", group="g", concurrency=50)
    async def note(message: Message[object]) -> None:
        handled[message.id] += 1


async def test_a_script_that_stops_half_way_is_ambiguous(lab: Lab) -> None:
    client = lab.client()
    client.publish("t", "warm")
    lab.redis.execute_command("ACL", "SETUSER", "default", "-xadd")
    try:
        with pytest.raises(AmbiguousResult, match=r"half-way.*does not let this user") as caught:
            client.publish("t", "one")
        with pytest.raises(PublishError, match="half-way") as many:
            client.publish_many("t", range(83))
    finally:
        lab.redis.execute_command("ACL", "SETUSER", "default", "+@all")
    assert (many.value.done, many.value.failed, len(many.value.ambiguous)) == ((), (), 83)
    assert client.publish("t", "one", id=caught.value.id).duplicate
    again = [OutgoingMessage(body=n, id=id_) for n, id_ in enumerate(many.value.ambiguous)]
    assert all(id_.duplicate for id_ in client.publish_many("t", again))
    assert lab.redis.hlen("rqretry:test:{t:0}:bodies") == 85
    assert lab.redis.llen("rqretry:test:{t:0}:backlog") == 85


@pytest.mark.parametrize("lost", [Fault.DROP_REPLY, Fault.DROP_REQUEST])
@pytest.mark.parametrize("decision", ["commit", "rollback"])
async def test_a_transaction_whose_opening_is_in_doubt_is_decided_all_the_same(
    lab: Lab, lost: Fault, decision: str
) -> None:
    operator = lab.client()
    operator.admin.create_topic("t")
    async with proxied(lab.server) as proxy, AsyncClient(proxy.url, namespace=NAMESPACE) as client:
        parts_of(client).store.repeat_seconds = 0.1
        transaction = client.transaction("t")
        proxy.rules = always(lost, "enlist")
        with pytest.raises(StoreUnavailable, match="may be open"):
            await transaction.publish(1)
        proxy.rules = []
        await getattr(transaction, decision)()
        with pytest.raises(TransactionDecided):
            await transaction.publish(2)
    state = operator.admin.transaction(transaction.id).state
    assert state == {"commit": "committed", "rollback": "rolled_back"}[decision]
    assert operator.admin.transactions() == []
