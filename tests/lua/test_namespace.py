"""swap, register, roster: the scripts of the namespace's own slot."""

from dataclasses import replace

import pytest

from rqretry.protocol import audit_log, inspect, maintain
from rqretry.protocol.catalog import compare_and_set
from rqretry.protocol.keys import NamespaceKeys
from tests.support.builders import SECOND
from tests.support.lua_hooks import CLOCK_KEY
from tests.support.world import START_MS, World

KEYS = NamespaceKeys("test")


@pytest.fixture
def catalog(world: World) -> World:
    set_time(world, START_MS)
    return world


def set_time(world: World, now_ms: int) -> None:
    key = f"{CLOCK_KEY}:{{test}}" if world.backend.clock_in_slot else CLOCK_KEY
    world.client.set(key, now_ms)


def swap(world: World, old: str, new: str) -> bool:
    return world.run(compare_and_set(KEYS, KEYS.topics, "t", old, new))


def record(world: World) -> str:
    return world.run(inspect.read_record(KEYS.topics, "t"))


def register(world: World, worker: str, ttl_ms: int = 15 * SECOND) -> int:
    """Register a worker; how many live then."""
    world.run(maintain.register(KEYS, worker=worker, about=f"{worker}!", ttl_ms=ttl_ms))
    return int(world.client.zcard(KEYS.workers))


def roster(world: World) -> tuple[int, dict[str, str]]:
    workers = world.perform(maintain.live_workers(KEYS))
    return world.run(maintain.roster(KEYS))[0], {one.name: one.about for one in workers}


def test_swap_replaces_a_record_that_is_as_expected(catalog: World) -> None:
    assert swap(catalog, "", "one") is True
    assert swap(catalog, "one", "two") is True
    assert record(catalog) == "two"


def test_swap_leaves_a_record_that_somebody_else_changed(catalog: World) -> None:
    swap(catalog, "", "one")
    assert swap(catalog, "", "two") is False
    assert swap(catalog, "other", "two") is False
    assert record(catalog) == "one"


def test_register_lists_a_worker_until_its_time_is_over(catalog: World) -> None:
    assert register(catalog, "w1") == 1
    assert register(catalog, "w2", 20 * SECOND) == 2
    set_time(catalog, START_MS + 15 * SECOND)
    assert roster(catalog) == (START_MS + 15 * SECOND, {"w2": "w2!"})
    assert register(catalog, "w3") == 2
    assert catalog.client.hkeys(KEYS.worker_details) == [b"w2", b"w3"]


def test_register_again_prolongs_even_a_time_that_is_over(catalog: World) -> None:
    register(catalog, "w1")
    set_time(catalog, START_MS + 60 * SECOND)
    assert register(catalog, "w1") == 1
    assert roster(catalog)[1] == {"w1": "w1!"}


def test_register_answers_the_settings_of_the_namespace(catalog: World) -> None:
    one = maintain.register(KEYS, worker="w", about="", ttl_ms=15 * SECOND)
    assert catalog.run(one) == ""
    catalog.client.hset(KEYS.settings, "settings", "{}")
    assert catalog.run(one) == "{}"


def test_register_for_no_time_is_a_goodbye(catalog: World) -> None:
    register(catalog, "w1")
    register(catalog, "w2")
    assert register(catalog, "w1", 0) == 1
    assert roster(catalog)[1] == {"w2": "w2!"}
    assert catalog.client.hkeys(KEYS.worker_details) == [b"w2"]


def test_roster_lists_all_of_very_many_in_pages(catalog: World) -> None:
    for number in range(2100):
        register(catalog, f"w{number}", 15 * SECOND + number // 100)
    assert roster(catalog)[1].keys() == {f"w{number}" for number in range(2100)}
    assert len(catalog.run(maintain.roster(KEYS))[1]) == 1000


def test_roster_of_nobody_is_empty(catalog: World) -> None:
    assert roster(catalog) == (START_MS, {})


def test_workers_stay_for_their_time_when_the_clock_goes_back(catalog: World) -> None:
    register(catalog, "w1")
    set_time(catalog, START_MS - SECOND)
    assert roster(catalog)[0] >= START_MS


def test_swap_with_nothing_deletes_the_record(catalog: World) -> None:
    swap(catalog, "", "one")
    assert swap(catalog, "two", "") is False
    assert swap(catalog, "one", "") is True
    assert (record(catalog), catalog.client.exists(KEYS.topics)) == ("", 0)


def test_roster_reports_since_when_a_worker_lives(catalog: World) -> None:
    register(catalog, "w1")
    set_time(catalog, START_MS + 5 * SECOND)
    register(catalog, "w1")
    register(catalog, "w2")
    _, workers, _ = catalog.run(maintain.roster(KEYS))
    assert {worker.name: worker.since_ms for worker in workers} == {
        "w1": START_MS,
        "w2": START_MS + 5 * SECOND,
    }


def note(world: World, verb: str, **counts: int) -> int:
    arguments = {"group": "g"}
    return world.run(
        audit_log.audit_append(KEYS, actor="me", verb=verb, arguments=arguments, counts=counts)
    )


def test_notes_are_kept_in_order_and_read_from_the_newest(catalog: World) -> None:
    assert note(catalog, "purge", messages=2) == START_MS
    set_time(catalog, START_MS + SECOND)
    assert note(catalog, "pause") == START_MS + SECOND
    assert catalog.run(audit_log.notes(KEYS, count=10)) == [
        (START_MS + SECOND, "me", "pause", {"group": "g"}, {}),
        (START_MS, "me", "purge", {"group": "g"}, {"messages": 2}),
    ]
    assert [line.verb for line in catalog.run(audit_log.notes(KEYS, count=1))] == ["pause"]


def test_notes_go_on_in_time_when_the_clock_goes_back(catalog: World) -> None:
    note(catalog, "pause")
    set_time(catalog, START_MS - SECOND)
    assert note(catalog, "resume") == START_MS
    assert catalog.run(audit_log.now(KEYS)) == START_MS


def test_the_audit_record_is_bounded(catalog: World) -> None:
    limit = audit_log.audit_append(KEYS, actor="me", verb="pause", arguments={}, counts={})
    for _ in range(300):
        catalog.run(replace(limit, args=(*limit.args[:-1], 100)))
    assert catalog.client.xlen(KEYS.audit) < 300
