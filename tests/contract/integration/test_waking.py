"""A wake-up and the leases behind it: one write, and what goes wrong between the two."""

from collections.abc import Sequence
from typing import Any

import pytest

from rqretry import App, Message
from rqretry.core.parts import parts_of
from rqretry.transport.store import Store
from rqretry.worker.worker import Worker
from tests.contract.integration.harness import NAMESPACE, Lab, Seen, until
from tests.support.faults.proxy import proxied
from tests.support.faults.rules import Fault, Rule


def consuming(app: App, topics: list[str], **options: Any) -> Seen:
    """One group of some topics, each of which is a place."""
    seen = Seen()

    @app.consumer(topics, group="g", **options)
    async def handle(message: Message[Any]) -> None:
        assert message.remaining() > 0, "its lease has ended"
        seen.add(message)

    return seen


async def done(lab: Lab, topics: Sequence[str], wanted: int) -> None:
    """Wait until so many messages have succeeded."""
    await until(
        lambda: sum(lab.stats("g", topic).counters.get("succeed", 0) for topic in topics) == wanted
    )


async def idle(lab: Lab, worker: Worker) -> None:
    """Wait until it waits in the server, with nothing to do."""
    await until(
        lambda: (
            all(place.empty and not place.leases for place in worker.places)
            and lab.redis.info("clients")["blocked_clients"] == 1
        )
    )


@pytest.mark.parametrize("places", [1, 2, 4])
async def test_a_wake_up_and_its_leases_are_one_round_trip(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, places: int
) -> None:
    topics, events = [f"t-{number}" for number in range(places)], list[Any]()
    app, client, exchange, run_each = lab.app(), lab.client(), Store.exchange, Store.run_each

    async def waits(store: Store, line: Any, requests: Any, *seconds: Any) -> list[Any]:
        events.append([str(request_parts[0]) for request_parts in requests])
        return await exchange(store, line, requests, *seconds)

    def calls(store: Store, commands: Any, seconds: float) -> Any:
        events.append([command.verb for command in commands])
        return run_each(store, commands, seconds)

    monkeypatch.setattr(Store, "exchange", waits)
    monkeypatch.setattr(Store, "run_each", calls)
    seen = consuming(app, topics)
    for topic in topics:
        client.publish(topic, "warm")
    async with lab.working(app) as worker:
        await done(lab, topics, places)
        await idle(lab, worker)
        last = len(events)
        client.publish(topics[-1], "wake up")
        await seen.count(places + 1)
        during = [event for event in events[last:] if "lease" in event]
    assert events[last - 1] == ["BZPOPMIN", *["EVALSHA"] * places]
    assert not during
    assert set(seen.attempts) == {1}
    lab.audit()


async def test_messages_of_several_places_come_with_one_wake_up(lab: Lab) -> None:
    app, client = lab.app(), lab.client()
    seen = consuming(app, ["a", "b", "c"])
    async with lab.working(app) as worker:
        for turn in range(5):
            await idle(lab, worker)
            for topic in "abc":
                client.publish_many(topic, range(3))
            await seen.count(9 * turn + 9)
        await done(lab, "abc", 45)
        lab.redis.script_flush()
        await idle(lab, worker)
        client.publish("b", "behind a wait whose scripts the server has forgotten")
        await seen.count(46)
    assert set(seen.attempts) == {1}
    lab.audit()


async def test_what_is_leased_because_its_worker_stops_is_given_back_or_done(lab: Lab) -> None:
    app, client = lab.app(), lab.client()
    seen = consuming(app, ["a", "b"])
    async with lab.working(app):
        pass
    client.publish("b", "of which no wake-up tells")
    keys = parts_of(client).catalog.group_keys("b", 0, "g")
    lab.redis.rename(keys.ready, "hidden")
    lab.redis.delete(keys.wake)
    async with lab.working(app) as worker:
        await idle(lab, worker)
        lab.redis.rename("hidden", keys.ready)
        worker.stop()
    stats = lab.stats("g", "b")
    assert stats.counters["lease"] == 1
    assert stats.ready + len(seen.messages) == 1
    assert (stats.inflight, stats.retry, stats.waiting, stats.dead) == (0, 0, (), 0)
    lab.audit()


@pytest.mark.parametrize(
    "rule",
    [Rule(Fault.DROP_REPLY, "lease", 3), Rule(Fault.DELAY_REPLY, "lease", 3, amount=400)],
    ids=["lost", "too late"],
)
async def test_a_lease_whose_answer_is_lost_or_too_late_costs_its_deadline(
    lab: Lab, rule: Rule
) -> None:
    client = lab.client()

    def overdue() -> bool:
        """Its lease has ended, or came to an end of which this worker knew."""
        seconds, microseconds = lab.redis.time()
        now_ms = seconds * 1000 + microseconds // 1000
        return (
            lab.redis.zcount(worker.places[0].keys.inflight, "-inf", now_ms) > 0
            or len(seen.messages) > 1
        )

    async with proxied(lab.server) as proxy:
        app = App(proxy.url, namespace=NAMESPACE)
        seen = consuming(app, ["a", "b"], visibility=0.3)
        async with lab.working(app) as worker:
            await idle(lab, worker)
            # Those of this wait are sent, and a short lease wakes others: two find nothing.
            proxy.rules = [rule]
            client.publish("b", "before")
            await seen.count(1)
            await idle(lab, worker)
            client.publish("a", "behind the wait whose answer fails")
            await until(overdue)
            lab.expire("a", "g")
            await seen.count(2)
            await done(lab, "ab", 2)
        await app.aclose()
    assert proxy.struck == [("lease", rule.fault)]
    assert seen.attempts == [1, 2]
