"""purge: dead -> gone."""

from tests.support.builders import failure, prepared
from tests.support.world import START_MS, World


def test_purge_leaves_nothing_behind(world: World) -> None:
    world.subscribe()
    world.publish(prepared("a", "x" * 9000, digest="d"))
    world.leased("a", publish=False)
    world.fail(failure("a", level=-1))
    with world.changes() as changed:
        assert world.purge("a") == ["OK"]
    assert changed == {
        "bodies": {"a": None},
        "big": {"a": None},
        "ids": {"a": None},
        "g:dead": {"a": None},
        "g:graves": {"a": None},
        "g:fingerprints": {f"\0{START_MS:016}\0a": None},
        "g:attempts": {"a": None},
        "g:failures": {"a": None},
        "counters": {"purge:g": 1},
        "events": ["purge g ops a"],
    }


def test_purge_keeps_the_body_for_the_groups_that_still_owe_it(world: World) -> None:
    world.subscribe("g")
    world.subscribe("h")
    world.dead_letter("a")
    with world.changes() as changed:
        assert world.purge("a") == ["OK"]
    assert "bodies" not in changed
    assert changed["pending"] == {"a": "b"}
    receipts = world.leased("a", group="h", publish=False)
    assert world.succeed(*receipts, group="h") == ["OK"]
    assert "bodies" not in world.state()


def test_purge_of_what_is_not_dead_is_gone_and_changes_nothing(world: World) -> None:
    world.subscribe()
    world.publish("ready")
    with world.changes() as changed:
        assert world.purge("ready", "unknown") == ["GONE", "GONE"]
    assert changed == {}


def test_purge_repeated_and_twice_in_one_call_counts_once(world: World) -> None:
    world.subscribe()
    world.dead_letter("a")
    assert world.purge("a", "a") == ["OK", "GONE"]
    assert world.purge("a") == ["GONE"]
    assert world.state()["counters"]["purge:g"] == "1"


def test_purge_removes_a_dead_letter_whose_body_is_missing(world: World) -> None:
    world.subscribe()
    world.dead_letter("a")
    world.damage().hdel(world.keys.bodies, "a")
    assert world.purge("a") == ["OK"]
    assert "g:dead" not in world.state()


def test_purge_of_a_level_takes_what_waits_there(world: World) -> None:
    world.subscribe()
    world.leased("a", "b")
    world.fail(failure("a"), failure("b"))
    with world.changes() as changed:
        assert world.purge("a", "unknown", place="delay:3") == ["OK", "GONE"]
    assert changed == {
        "bodies": {"a": None},
        "g:delay:3": {"a": None},
        "g:attempts": {"a": None},
        "g:failures": {"a": None},
        "counters": {"purge:g": 1},
        "events": ["purge g ops a"],
    }


def test_purge_of_what_is_in_flight_makes_its_receipt_useless(world: World) -> None:
    world.subscribe()
    receipts = world.leased("a")
    assert world.purge("a", place="inflight") == ["OK"]
    assert world.succeed(*receipts) == ["GONE"]
    assert "bodies" not in world.state()


def test_purge_of_a_dead_letter_that_a_cut_call_left_in_flight(world: World) -> None:
    world.subscribe()
    world.dead_letter("a")
    world.client.zadd(world.group().inflight, {"a": START_MS})
    with world.changes() as changed:
        assert world.purge("a") == ["OK"]
    assert changed["g:inflight"] == {"a": None}
