"""purge_list: ready -> gone, at the head of a list."""

from rqretry.protocol import operate
from rqretry.protocol.operate import PurgeCount
from tests.support.builders import failure, first, prepared
from tests.support.world import START_MS, World


def test_drop_leaves_nothing_behind(world: World) -> None:
    world.subscribe()
    world.publish(prepared("a", "x" * 9000, digest="d"), "b")
    with world.changes() as changed:
        assert world.drop(limit=1) == PurgeCount(1, 1)
    assert changed == {
        "g:ready": ["b"],
        "bodies": {"a": None},
        "big": {"a": None},
        "ids": {"a": None},
        "counters": {"purge:g": 1},
        "events": ["purge g ops a"],
    }


def test_drop_in_the_retry_lane_takes_the_record_too(world: World) -> None:
    world.subscribe()
    world.leased("a")
    world.fail(failure("a", delay_ms=1000))
    world.advance(1000)
    world.promote()
    with world.changes() as changed:
        assert world.drop(lane="retry") == PurgeCount(1, 1)
    assert changed == {
        "g:retry": None,
        "bodies": {"a": None},
        "g:attempts": {"a": None},
        "g:failures": {"a": None},
        "counters": {"purge:g": 1},
        "events": ["purge g ops a"],
    }


def test_drop_keeps_what_the_caller_keeps_and_moves_it_to_the_tail(world: World) -> None:
    world.subscribe()
    world.publish("a", "b", "c", "d")
    assert world.drop(("a", False), ("b", True), ("c", False)) == PurgeCount(1, 3)
    assert world.state()["g:ready"] == ["d", "a", "c"]


def test_drop_stops_before_a_message_that_the_caller_has_not_looked_at(world: World) -> None:
    world.subscribe()
    world.publish("a", "new", "b")
    assert world.drop(("a", True), ("b", True)) == PurgeCount(1, 1)
    assert world.state()["g:ready"] == ["new", "b"]
    with world.changes() as changed:
        assert world.drop(("b", True)) == PurgeCount(0, 0)
    assert changed == {}


def test_drop_keeps_the_body_for_the_groups_that_still_owe_it(world: World) -> None:
    world.subscribe("g")
    world.subscribe("h")
    world.publish("a")
    with world.changes() as changed:
        world.drop()
    assert "bodies" not in changed
    assert changed["pending"] == {"a": "b"}
    assert world.succeed(*world.leased("a", group="h", publish=False), group="h") == ["OK"]
    assert "bodies" not in world.state()


def test_drop_of_leftovers_only_trims_the_list(world: World) -> None:
    world.subscribe("g")
    world.subscribe("h")
    world.dead_letter("dead")
    world.leased("inflight")
    world.succeed(*world.leased("done"))
    world.client.rpush(world.group().ready, "inflight", "dead", "done")
    with world.changes() as changed:
        assert world.drop() == PurgeCount(0, 3)
    assert changed == {"g:ready": None}
    assert world.succeed(*first("inflight")) == ["OK"]


def test_drop_counts_a_message_that_is_listed_twice_once(world: World) -> None:
    world.subscribe()
    world.publish("a")
    world.client.rpush(world.group().ready, "a")
    assert world.drop() == PurgeCount(1, 2)
    assert "g:ready" not in world.state()


def test_drop_of_an_empty_list_changes_nothing(world: World) -> None:
    world.subscribe()
    with world.changes() as changed:
        assert world.drop() == PurgeCount(0, 0)
    assert changed == {}


def test_held_pages_through_a_list_and_a_sorted_set(world: World) -> None:
    world.subscribe()
    world.leased("a", "b")
    world.fail(failure("a", delay_ms=1000), failure("b", delay_ms=1500))
    world.publish("c", "d", "e")
    keys = world.group()
    with world.changes() as changed:
        page = world.run(operate.scan_group(keys, keys.ready, in_list=True, offset=1, count=5))
        waiting = world.run(
            operate.scan_group(keys, keys.levels[0], in_list=False, offset=0, count=1)
        )
        empty = world.run(operate.scan_group(keys, keys.inflight, in_list=False, offset=0))
    assert changed == {}
    assert (page.total, page.ids, page.due_ms) == (3, ["d", "e"], [None, None])
    assert (page.attempts, page.failures) == ([1, 1], ["", ""])
    assert (waiting.total, waiting.ids, waiting.attempts) == (2, ["a"], [2])
    assert waiting.due_ms == [START_MS + 1000]
    assert waiting.failures == ['1 1000000+1000 {"c":"failure"}\n']
    assert (empty.total, empty.ids) == (0, [])
