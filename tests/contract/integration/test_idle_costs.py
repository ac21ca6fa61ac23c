"""What exists and is idle costs next to nothing: places of a worker, topics of a reaper."""

import time
from collections.abc import Sequence
from typing import Any

import pytest

from rqretry import Client
from rqretry.core.parts import parts_of
from rqretry.maintenance.upkeep import Upkeep
from rqretry.protocol.command import Command, Operation
from rqretry.transport.store import Store
from rqretry.worker import fetch, wakeups
from rqretry.worker.registration import join_again
from tests.contract.integration.harness import Lab, Seen, until

MANY = 120


def executed(lab: Lab, verb: str = "") -> int:
    """How many commands the server has executed; of one kind, or of all."""
    stats = lab.redis.info("commandstats")
    return sum(
        int(s["calls"]) for name, s in stats.items() if name.endswith(f"_{verb}") or not verb
    )


def many_topics(lab: Lab, **options: Any) -> list[str]:
    """Topics with one group."""
    client, names = lab.client(), [f"t-{number}" for number in range(MANY)]
    parts_of(client).store.perform(parts_of(client).catalog.join("g", "push", names, **options))
    return names


async def test_an_idle_worker_looks_at_many_places_with_one_command(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "LOOK_EVERY_S", 0.3)
    names, app, seen = many_topics(lab), lab.app(), Seen()
    app.consumer(names, group="g")(seen.add)
    async with lab.working(app) as worker:
        places = worker.places
        await until(lambda: all(place.empty for place in places))
        before, scripts = executed(lab, "exists"), executed(lab, "evalsha")
        looked_at = max(place.schedule.looked_at for place in places)

        await until(lambda: min(place.schedule.looked_at for place in places) > looked_at + 1)

        looks = executed(lab, "exists") - before
        assert looks < MANY / 4
        assert executed(lab, "evalsha") - scripts < MANY / 4
        await app.publish(names[-1], "still awake")
        await seen.count(1)


async def test_what_was_woken_is_leased_before_others_are_looked_at(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, app, seen = many_topics(lab), lab.app(), Seen()
    app.consumer(names, group="g")(seen.add)
    sent: list[str] = []
    run_each = Store.run_each

    def watched(store: Store, commands: Sequence[Command[Any]], seconds: float) -> Any:
        sent.extend(command.verb for command in commands)
        return run_each(store, commands, seconds)

    async with lab.working(app) as worker:
        await until(lambda: all(place.empty for place in worker.places))
        monkeypatch.setattr(Store, "run_each", watched)
        for place in worker.places:
            place.schedule.looked_at = 0.0
        await app.publish(names[7], "urgent")
        await seen.count(1)

    assert sent[0] == "lease"


async def test_many_that_are_woken_together_are_leased_from_together(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "_AT_ONCE_S", 1.0)
    names, app, seen, client = many_topics(lab), lab.app(), Seen(), lab.client()
    app.consumer(names, group="g")(seen.add)
    async with lab.working(app) as worker:
        await until(lambda: all(place.empty for place in worker.places))
        before = executed(lab, "bzpopmin")

        parts_of(client).store.perform(parts_of(client).catalog.groups.set("g", max_retries=7))
        await until(lambda: not lab.redis.exists(*(place.keys.wake for place in worker.places)))
        await app.publish(names[3], "still awake")
        await seen.count(1)

    assert executed(lab, "bzpopmin") - before < MANY / 4


def counted(operation: Operation[Any]) -> Operation[tuple[int, Any]]:
    """How many round trips an operation takes, and its answer."""
    calls, answer = 0, None
    while True:
        try:
            step = operation.send(answer)
        except StopIteration as end:
            return calls, end.value
        calls += 1
        answer = yield step


async def test_a_group_of_many_topics_joins_with_a_few_calls(lab: Lab) -> None:
    names, client = many_topics(lab), lab.client()
    for group in ("new", "g"):  # one joins again
        join = parts_of(client).catalog.join(group, "push", names)
        calls, record = parts_of(client).store.perform(counted(join))
        assert set(record.topics) == set(names)
        assert calls < MANY / 4
    calls, places = parts_of(client).store.perform(
        counted(parts_of(client).catalog.groups.places("g", names))
    )
    assert len(places) == MANY
    assert calls < MANY / 4


async def test_eight_groups_of_a_worker_join_again_in_the_round_trips_of_a_few(lab: Lab) -> None:
    app, client = lab.app(), lab.client()
    for number in range(8):
        app.consumer("t", group=f"g{number}")(print)
    app.consumer("%DLQ%g0", group="view")(print)
    specs = parts_of(app).consumers
    store, catalog = parts_of(client).store, parts_of(client).catalog

    calls, _ = store.perform(counted(join_again(catalog, specs)))

    assert [group.name for group in client.admin.groups()] == [spec.group for spec in specs]
    elsewhere = Client(lab.url, namespace="elsewhere")
    with elsewhere:
        of_one, _ = parts_of(elsewhere).store.perform(
            counted(join_again(parts_of(elsewhere).catalog, specs[:1]))
        )
    assert calls < 4 * of_one


async def test_a_round_of_upkeep_costs_what_is_due_and_not_what_exists(lab: Lab) -> None:
    names, client = many_topics(lab), lab.client()
    upkeep = Upkeep(parts_of(client).catalog, "reaper")
    parts_of(client).store.perform(upkeep.round())
    before = executed(lab)
    for _ in range(10):
        parts_of(client).store.perform(upkeep.round())
    assert executed(lab) - before < MANY

    client.publish(names[7], "late", delay=0.05)
    client.publish(names[8], "later", delay=3600)
    end = time.monotonic() + 10
    delivered = 0
    while not delivered and time.monotonic() < end:
        delivered += parts_of(client).store.perform(upkeep.round()).delivered
    assert delivered == 1

    next_ms = parts_of(client).store.perform(upkeep.round()).next_ms
    assert next_ms is not None
    assert 3_500_000 < next_ms <= 3_600_000


async def test_upkeep_on_a_cluster_comes_to_all_partitions_in_turns(lab: Lab) -> None:
    names, client = many_topics(lab), lab.client()
    upkeep = Upkeep(parts_of(client).catalog, "reaper", spread=True)
    parts_of(client).store.perform(upkeep.round())
    client.publish(names[-1], "due", delay=0.001)
    before = executed(lab, "exists")

    delivered = sum(parts_of(client).store.perform(upkeep.round()).delivered for _ in range(4))

    assert delivered == 1
    assert executed(lab, "exists") - before < 4 * 60
