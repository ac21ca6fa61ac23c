"""swap, register, roster: the scripts of the namespace's own slot."""

import pytest

from rqretry.commands import administering, upkeep
from rqretry.keys import NamespaceKeys
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
    return world.run(administering.swap(KEYS, KEYS.topics, "t", old, new))


def record(world: World) -> str:
    return world.run(administering.read_record(KEYS.topics, "t"))


def register(world: World, worker: str, ttl_ms: int = 15 * SECOND) -> int:
    return world.run(upkeep.register(KEYS, worker=worker, about=f"{worker}!", ttl_ms=ttl_ms))


def roster(world: World) -> tuple[int, dict[str, str]]:
    return world.run(upkeep.roster(KEYS))


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


def test_register_for_no_time_is_a_goodbye(catalog: World) -> None:
    register(catalog, "w1")
    register(catalog, "w2")
    assert register(catalog, "w1", 0) == 1
    assert roster(catalog)[1] == {"w2": "w2!"}
    assert catalog.client.hkeys(KEYS.worker_details) == [b"w2"]


def test_roster_of_nobody_is_empty(catalog: World) -> None:
    assert roster(catalog) == (START_MS, {})
