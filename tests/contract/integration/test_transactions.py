"""Transactions through the public API: atomic over partitions, checked back, never half done."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from rqretry import (
    App,
    InvalidArgument,
    Message,
    OutgoingMessage,
    QueueFull,
    StoreUnavailable,
    TransactionDecided,
    TransactionNotFound,
    TransactionResolution,
)
from rqretry.consumer.transaction_checker import TransactionCheck
from rqretry.core.parts import parts_of
from rqretry.protocol import transaction
from rqretry.protocol.command import Command
from tests.contract.integration.harness import Lab, Seen, counted, until

COMMIT, ROLLBACK, UNKNOWN = TransactionResolution


def collecting(app: App, topic: str = "t", group: str = "g") -> Seen:
    seen = Seen()

    @app.consumer(topic, group=group)
    async def handle(message: Message[Any]) -> None:
        seen.add(message)

    return seen


def is_state(lab: Lab, id_: str, state: str) -> Callable[[], bool]:
    client = lab.client()
    return lambda: client.admin.transaction(id_).state == state


async def test_nothing_is_seen_before_the_commit_and_everything_after_it(lab: Lab) -> None:
    app = lab.app()
    lab.client().admin.create_topic("t", partitions=3)
    seen = collecting(app)

    async with lab.working(app):
        async with app.transaction("t", producer_group="shop") as tx:
            for n in range(20):
                await tx.publish({"n": n}, tag="a", keys=[f"k{n}"], headers={"h": "1"})
            stats = lab.stats("g")
            assert (stats.ready, stats.inflight, seen.bodies) == (0, 0, [])
        await seen.count(20)
        await counted(lab, "g", succeed=20)

    assert sorted(body["n"] for body in seen.bodies) == list(range(20))
    message = seen.messages[0]
    assert (message.tag, message.headers, message.topic) == ("a", {"h": "1"}, "t")
    assert lab.client().admin.transactions() == []


async def test_messages_of_a_partition_come_in_the_order_of_the_transaction(lab: Lab) -> None:
    app = lab.app()
    async with app.transaction("t") as tx:
        await tx.publish_many([f"{n}" for n in range(1200)])
    client = lab.client()
    consumer = client.simple_consumer("t", group="g", create_group=True)
    found: list[str] = []
    while batch := consumer.receive(max_messages=32, wait=0):
        found += [message.body for message in batch]
        consumer.ack(batch)
    assert found == [f"{n}" for n in range(1200)]


async def test_a_block_that_raises_rolls_back_and_leaves_nothing(lab: Lab) -> None:
    app = lab.app()
    await app.publish("t", "other")
    with pytest.raises(ZeroDivisionError):
        async with app.transaction("t") as tx:
            await tx.publish("x" * 10_000, id="mine")
            raise ZeroDivisionError
    assert lab.redis.hlen("rqretry:test:{t:0}:bodies") == 1
    again = await app.publish("t", "x" * 10_000, id="mine")
    assert again.duplicate is False


async def test_a_block_that_is_cancelled_rolls_back(lab: Lab) -> None:
    app, inside = lab.app(), asyncio.Event()

    async def transact() -> None:
        async with app.transaction("t") as tx:
            await tx.publish(1)
            inside.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(transact())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert lab.redis.hlen("rqretry:test:{t:0}:bodies") == 0


async def test_the_explicit_form_commits_and_repeats_are_harmless(lab: Lab) -> None:
    app = lab.app()
    tx = app.transaction("t")
    id_ = await tx.publish("a")
    await tx.commit()
    await tx.commit()
    with pytest.raises(TransactionDecided, match="cannot be rolled back"):
        await tx.rollback()
    with pytest.raises(TransactionDecided, match="takes no more messages"):
        await tx.publish("b")
    assert lab.client().admin.message(id_).states[0].state == "ready"


async def test_a_transaction_without_messages_sends_nothing_and_ends_either_way(lab: Lab) -> None:
    app = lab.app()
    async with app.transaction("t"):
        pass
    tx = app.transaction("t")
    await tx.rollback()
    assert lab.redis.dbsize() == 0


async def test_the_same_without_asyncio_over_several_topics(lab: Lab) -> None:
    client = lab.client()
    with client.transaction("t") as tx:
        one = tx.publish(1)
        two = tx.publish(2, topic="u")
    assert {client.admin.message(id_).topic for id_ in (one, two)} == {"t", "u"}
    with pytest.raises(KeyError), client.transaction("t") as tx:
        tx.publish(3)
        raise KeyError
    stored = {topic.topic: topic.stored for topic in client.admin.stats().topics}
    assert stored == {"t": 1, "u": 1}


async def test_only_the_subscribed_tags_are_delivered(lab: Lab) -> None:
    app, seen = lab.app(), Seen()

    @app.consumer("t", group="g", tags="red")
    async def handle(message: Message[Any]) -> None:
        seen.add(message)

    async with lab.working(app):
        async with app.transaction("t") as tx:
            await tx.publish(1, tag="blue")
            await tx.publish(2, tag="red")
        await counted(lab, "g", succeed=1, filtered=1)
    assert seen.bodies == [2]


async def test_a_committed_message_retries_like_any_other(lab: Lab) -> None:
    app, seen = lab.app(delay_levels="10ms"), Seen()

    @app.consumer("t", group="g")
    async def handle(message: Message[Any]) -> bool:
        seen.add(message)
        return message.attempt > 2

    async with lab.working(app):
        async with app.transaction("t") as tx:
            await tx.publish(1)
        await seen.count(3)
        await counted(lab, "g", succeed=1, fail=2)
    assert seen.attempts == [1, 2, 3]


@pytest.mark.parametrize("option", [{"delay": 1}, {"delay_level": 1}, {"deliver_at": 2e9}])
async def test_a_message_of_a_transaction_cannot_be_delayed(
    lab: Lab, option: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgument, match="cannot be given in a transaction"):
        lab.client().transaction("t").publish(1, **option)
    assert lab.redis.dbsize() == 0


async def test_more_messages_than_a_transaction_may_have_are_refused(lab: Lab) -> None:
    client = lab.client()
    tx = client.transaction("t")
    tx.publish_many([0] * 8000)
    with pytest.raises(InvalidArgument, match="8001 messages; at most 8000"):
        tx.publish(1)
    tx.commit()
    assert client.admin.stats("t").topics[0].backlog == 8000


async def test_a_full_topic_refuses_halves(lab: Lab) -> None:
    client = lab.client()
    client.publish("t", 1)
    client.admin.set_topic("t", max_messages=1)
    tx = client.transaction("t")
    with pytest.raises(QueueFull):
        tx.publish(2)
    tx.rollback()


async def test_ids_are_checked_against_what_is_stored(lab: Lab) -> None:
    client = lab.client()
    client.publish("t", 1, id="a")
    with client.transaction("t") as tx:
        assert tx.publish(1, id="a").duplicate is True
        assert tx.publish(2, id="b").duplicate is False
        with pytest.raises(InvalidArgument, match="other content"):
            tx.publish(9, id="a")
        other = client.transaction("t")
        with pytest.raises(InvalidArgument, match="a transaction that is not decided"):
            other.publish(2, id="b")
        other.rollback()
    assert client.admin.stats("t").topics[0].backlog == 2


async def test_an_id_cannot_be_published_beside_an_undecided_transaction_that_has_it(
    lab: Lab,
) -> None:
    client = lab.client()
    tx = client.transaction("t")
    tx.publish(1, id="a")
    for _ in range(2):
        with pytest.raises(InvalidArgument, match="id 'a' is the id of a message in a trans"):
            client.publish("t", 1, id="a")
    tx.rollback()
    assert client.publish("t", 1, id="a").duplicate is False
    with client.transaction("t") as committed:
        committed.publish(1, id="b")
    assert client.publish("t", 1, id="b").duplicate is True
    assert client.admin.stats("t").topics[0].backlog == 2


async def test_a_checker_decides_what_its_producer_left(lab: Lab) -> None:
    app, asked = lab.app(), []
    seen = collecting(app)

    @app.transaction_checker("shop", check_after=0.02, check_every=0.02)
    def check(tx: TransactionCheck) -> TransactionResolution:
        asked.append(tx)
        return COMMIT if tx.messages[0].body == "paid" else ROLLBACK

    paid, failed = (app.transaction("t", producer_group="shop") for _ in range(2))
    await paid.publish("paid", tag="a", keys="k", headers={"order": "17"})
    await failed.publish("failed")
    async with lab.working(app):
        await until(is_state(lab, paid.id, "committed"))
        await until(is_state(lab, failed.id, "rolled_back"))
        await seen.count(1)
        await counted(lab, "g", succeed=1)

    assert seen.bodies == ["paid"]
    (first,) = [tx for tx in asked if tx.id == paid.id]
    assert (first.topic, first.producer_group, first.check, first.max_checks) == (
        "t",
        "shop",
        1,
        15,
    )
    (half,) = first.messages
    assert (half.body, half.tag, half.keys, half.headers) == ("paid", "a", ("k",), {"order": "17"})
    with pytest.raises(TransactionDecided, match="its checker said so"):
        await failed.commit()
    await paid.commit()


async def test_a_plain_checker_that_exits_is_one_that_does_not_know(lab: Lab) -> None:
    app = lab.app()

    @app.transaction_checker("t", check_after=0.02, check_every=0.02, max_checks=1)
    def check(_tx: TransactionCheck) -> Any:
        raise KeyboardInterrupt

    tx = app.transaction("t")
    await tx.publish("a")
    async with lab.working(app):
        await until(is_state(lab, tx.id, "parked"))


@pytest.mark.parametrize("way", ["unknown", "raises", "hangs", "lies", "exits"])
async def test_a_checker_that_does_not_know_is_asked_again_and_then_the_transaction_is_parked(
    lab: Lab, way: str
) -> None:
    app, asked = lab.app(), []

    @app.transaction_checker("t", check_after=0.02, check_every=0.02, max_checks=3, timeout=0.1)
    async def check(tx: TransactionCheck) -> Any:
        asked.append(tx.check)
        if way == "raises":
            raise RuntimeError("the database is away")
        if way == "exits":
            raise SystemExit("password=hunter2")
        if way == "hangs":
            await asyncio.sleep(60)
        return UNKNOWN if way == "unknown" else True

    tx = app.transaction("t")
    id_ = await tx.publish("a")
    async with lab.working(app):  # an app with a checker and no consumers works too
        await until(is_state(lab, tx.id, "parked"))

    recorded = {
        "unknown": "does not know yet",
        "raises": "RuntimeError: the database is away",
        "hangs": "took longer than 0.1 s",
        "lies": "answered True",
        "exits": "SystemExit: password=***",
    }
    client = lab.client()
    (found,) = client.admin.transactions(parked=True)
    assert (asked, found.checks) == ([1, 2, 3], 3)
    assert recorded[way] in found.reason
    assert client.admin.stats().parked_transactions == 1
    assert "parked after 3 checks" in client.admin.explain(id_)["-"]
    assert client.admin.commit_transaction(tx.id) is True
    assert client.admin.commit_transaction(tx.id) is False
    assert [entry.verb for entry in client.admin.audit()] == ["commit_transaction"]
    assert client.admin.message(id_).states[0].state == "ready"
    with pytest.raises(TransactionDecided):
        client.admin.rollback_transaction(tx.id)


async def test_two_workers_do_not_check_at_once_and_a_dead_one_is_replaced(lab: Lab) -> None:
    app = lab.app()
    running: set[str] = set()
    asked: list[int] = []

    @app.transaction_checker("t", check_after=0.02, check_every=0.02, max_checks=6)
    async def check(tx: TransactionCheck) -> TransactionResolution:
        assert tx.id not in running
        running.add(tx.id)
        await asyncio.sleep(0.01)
        running.discard(tx.id)
        asked.append(tx.check)
        return UNKNOWN

    tx = app.transaction("t")
    await tx.publish("a")
    async with lab.working(app), lab.working(app):
        await until(is_state(lab, tx.id, "parked"))
    assert asked == [1, 2, 3, 4, 5, 6]
    lab.client().admin.rollback_transaction(tx.id)


async def test_a_decision_that_was_cut_off_is_completed_by_the_next_worker(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = lab.app()
    lab.client().admin.create_topic("t", partitions=2)
    seen = collecting(app)
    monkeypatch.setattr("rqretry.maintenance.transaction_resolver.FINISH_LEASE_MS", 1)
    monkeypatch.setattr(
        "rqretry.maintenance.transaction_resolver.carry_out", lambda *_, **__: iter(())
    )
    async with app.transaction("t") as tx:
        for n in range(10):
            await tx.publish(n)
    monkeypatch.undo()
    (found,) = lab.client().admin.transactions()
    assert (found.state, len(found.places)) == ("committed", 2)
    async with lab.working(app):
        await seen.count(10)
        await counted(lab, "g", succeed=10)
    assert sorted(seen.bodies) == list(range(10))
    assert lab.client().admin.transactions() == []


async def test_a_lost_answer_to_a_commit_is_safe_to_repeat(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = lab.client()
    tx = client.transaction("t")
    tx.publish(1)
    run = parts_of(client).store.session.run

    def losing(command: Command[Any], *rest: Any) -> Any:
        answer = yield from run(command, *rest)
        if command.verb == "decide":
            raise StoreUnavailable("lost")
        return answer

    monkeypatch.setattr(parts_of(client).store.session, "run", losing)
    with pytest.raises(StoreUnavailable):
        tx.commit()
    with pytest.raises(TransactionDecided):
        tx.publish(2)
    monkeypatch.undo()
    tx.commit()
    assert client.admin.stats("t").topics[0].backlog == 1


async def test_halves_that_arrive_after_the_decision_are_refused(lab: Lab) -> None:
    client, operator = lab.client(), lab.client()
    tx = client.transaction("t")
    tx.publish(1)
    operator.admin.rollback_transaction(tx.id)
    with pytest.raises(TransactionDecided, match="decided meanwhile"):
        tx.publish(2)
    with pytest.raises(TransactionDecided, match="rolled back before, by"):
        tx.commit()
    assert client.admin.stats("t").topics[0].stored == 0


async def test_explain_reports_the_next_check(lab: Lab) -> None:
    client = lab.client()
    tx = client.transaction("t", check_after="12s", max_checks=15)
    id_ = tx.publish(1)
    view = client.admin.message(id_)
    assert (view.states[0].state, view.states[0].group) == ("prepared", "-")
    assert f"transaction {tx.id} is unresolved: check 1 of 15 in 1" in view.states[0].explain
    assert [event.event for event in view.timeline] == ["prepare"]
    tx.rollback()


async def test_an_unknown_transaction_is_an_error(lab: Lab) -> None:
    with pytest.raises(TransactionNotFound, match="no transaction 'nobody'"):
        lab.client().admin.commit_transaction("nobody")


async def test_threads_transact_at_once(lab: Lab) -> None:
    client = lab.client()

    def transact(number: int) -> None:
        with client.transaction("t") as tx:
            tx.publish(number)
            tx.publish_many([OutgoingMessage(body=number, tag="x")])

    threads = [threading.Thread(target=transact, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.admin.stats("t").topics[0].backlog == 16


async def test_options_are_checked_before_anything_is_sent(lab: Lab) -> None:
    app = lab.app()
    with pytest.raises(InvalidArgument, match="max_checks 0"):
        app.transaction("t", max_checks=0)
    with pytest.raises(InvalidArgument, match="check_every"):
        app.transaction("t", check_every="never")
    with pytest.raises(InvalidArgument, match="group 'a b'"):
        app.transaction("t", producer_group="a b")
    with pytest.raises(InvalidArgument, match="'nonsense' is not one of"):
        app.transaction("t", nonsense=1)  # type: ignore[call-arg]
    with pytest.raises(InvalidArgument, match="'timeout' is not one of"):
        app.transaction("t", timeout=1)  # type: ignore[call-arg] # a checker's alone
    assert lab.redis.dbsize() == 0


async def test_fsck_finds_halves_whose_transaction_is_lost(lab: Lab) -> None:
    client = lab.client()
    tx = client.transaction("t")
    tx.publish(1)
    stored = lab.redis.hget("rqretry:test:{test}:transactions", tx.id)
    lab.redis.hdel("rqretry:test:{test}:transactions", tx.id)
    with pytest.raises(AssertionError, match=f"waits for transaction {tx.id}, which has no record"):
        lab.audit()
    lab.redis.hset("rqretry:test:{test}:transactions", tx.id, stored)
    found: Command[Any] = transaction.read(parts_of(client).catalog.keys, tx.id)
    assert parts_of(client).store.run(found).state == "open"
    tx.rollback()


async def test_messages_with_a_message_group_enter_its_line_in_their_order(lab: Lab) -> None:
    app, running = lab.app(), set()
    seen = Seen()

    @app.consumer("t", group="g", ordered=True)
    async def handle(message: Message[Any]) -> bool:
        assert message.message_group not in running
        running.add(message.message_group)
        await asyncio.sleep(0)
        running.discard(message.message_group)
        seen.add(message)
        return message.body != 3 or message.attempt > 1

    lab.client().admin.create_topic("t", partitions=2)
    async with lab.working(app):
        lab.client().admin.set_group("g", policy="fixed:10ms")
        await app.publish("t", 0, message_group="a")
        async with app.transaction("t") as tx:
            for n in range(1, 8):
                await tx.publish(n, message_group="a")
                await tx.publish(-n, message_group="b")
        await app.publish("t", 8, message_group="a")
        await counted(lab, "g", succeed=16, fail=1)
    bodies = seen.bodies
    assert [n for n in bodies if n >= 0] == [0, 1, 2, 3, 3, 4, 5, 6, 7, 8]
    assert [n for n in bodies if n < 0] == [-1, -2, -3, -4, -5, -6, -7]
