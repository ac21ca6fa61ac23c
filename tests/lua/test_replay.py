"""replay: committed -> ready, of what is kept."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from rqretry.core.receipt import Receipt
from tests.support.builders import failure, first, prepared
from tests.support.ordering import line, sent
from tests.support.world import START_MS, World

HOUR, MB = 3_600_000, 2**20
RECORD = "0 1000000 {}\n"


def keeping(world: World, *, keep_ms: int = HOUR, keep_bytes: int = 10 * MB) -> None:
    """The topic keeps bodies from now on."""
    version = world.route.version + 1
    world.route = replace(world.route, version=version, keep_ms=keep_ms, keep_bytes=keep_bytes)
    world.install()


def consumed(world: World, *ids: str) -> None:
    """Publish these, and let the group finish with them."""
    assert world.succeed(*world.leased(*ids)) == ["OK"] * len(ids)


def test_by_default_nothing_is_kept(world: World) -> None:
    world.subscribe()
    consumed(world, "a")
    assert {"kept", "kept_bodies", "g:consumed"}.isdisjoint(world.state())
    assert world.replay() == (0, 0)


def test_what_is_done_is_kept_and_delivered_again_as_new(world: World) -> None:
    world.subscribe()
    keeping(world)
    world.publish("a")
    body = world.state()["bodies"]["a"]
    assert world.succeed(*world.leased("a", publish=False)) == ["OK"]
    state = world.state()
    assert "bodies" not in state
    assert state["kept_bodies"] == {"a": body}
    assert state["kept"].keys() == state["g:consumed"].keys() == {"a"}
    with world.changes() as changed:
        assert world.replay() == (1, 1)
    assert changed.pop("kept").keys() == changed.pop("g:consumed").keys() == {"a"}
    assert changed == {
        "bodies": {"a": body},
        "kept_bodies": {"a": None},
        "pending": {"a": "a"},
        "g:ready": ["a"],
        "g:attempts": {"a": f"{START_MS + 1}:1:0:0"},
        "g:failures": {"a": RECORD},
        "g:wake": {"1": 0},
        "counters": {"publish:g": 1, "replay:g": 1},
        "events": ["replay g ops a"],
    }
    assert world.replay() == (0, 0)
    assert world.lease().numbers == [(START_MS + 1, 1)]
    assert world.succeed(*first("a")) == ["STALE"]
    assert world.succeed(Receipt("a", START_MS + 1)) == ["OK"]
    assert world.state()["kept_bodies"] == {"a": body}


def test_only_what_was_done_in_the_time_is_delivered(world: World) -> None:
    world.subscribe()
    keeping(world)
    for id_ in "abc":
        consumed(world, id_)
        world.advance(1000)
    assert world.replay(since_ms=START_MS + 1000, upto_ms=START_MS + 2000) == (1, 1)
    assert world.lease().ids == ["b"]


@pytest.mark.parametrize("year", [2026, 2040, 2100])
def test_calls_of_one_millisecond_are_told_apart(world: World, year: int) -> None:
    world.subscribe()
    keeping(world, keep_ms=200 * 366 * 24 * HOUR)
    world.advance(round(datetime(year, 1, 1, tzinfo=UTC).timestamp() * 1000) - START_MS)
    for receipt in world.leased(*"cba"):
        assert world.succeed(receipt) == ["OK"]
    times = world.state()["g:consumed"]
    assert sorted(times, key=times.__getitem__) == ["c", "b", "a"]
    assert len(set(times.values())) == 3


def test_pages_go_on_where_the_last_one_ended(world: World) -> None:
    world.subscribe()
    keeping(world)
    for id_ in "abcde":
        consumed(world, id_)
    assert [world.replay(limit=2) for _ in range(4)] == [(2, 2), (2, 2), (1, 1), (0, 0)]
    assert world.lease(9).ids == ["a", "b", "c", "d", "e"]


def test_what_another_group_still_owes_is_given_without_a_second_body(world: World) -> None:
    world.subscribe()
    world.subscribe("h")
    keeping(world)
    consumed(world, "a")
    assert "kept" not in world.state()
    assert world.replay() == (1, 1)
    assert world.state()["pending"] == {"a": "ba"}
    ((number, _),) = world.lease(group="h").numbers
    assert world.succeed(Receipt("a", number), group="h") == ["OK"]
    assert "kept" not in world.state()
    assert world.lease().ids == ["a"]


def test_nothing_is_given_behind_a_newer_route(world: World) -> None:
    world.subscribe(ordered=True)
    keeping(world)
    consumed(world, "a")
    with world.changes() as changed:
        assert world.replay(route=world.route.version - 1) == (-1, 0)
    assert changed == {}
    assert world.replay(route=world.route.version) == (1, 1)


def test_each_group_replays_what_it_did_itself(world: World) -> None:
    world.subscribe()
    world.subscribe("h")
    keeping(world)
    consumed(world, "a")
    world.lease(group="h")
    world.succeed(*first("a"), group="h")
    assert world.replay() == (1, 1)
    assert world.replay("h") == (1, 1)
    assert world.state()["pending"] == {"a": "ab"}
    assert world.replay("h") == (0, 0)


def test_a_later_group_begins_with_what_is_kept(world: World) -> None:
    world.subscribe()
    keeping(world)
    consumed(world, "a", "b")
    world.subscribe("late")
    assert world.replay("late", all_groups=True) == (2, 2)
    assert world.replay("late", all_groups=True) == (0, 0)
    assert world.lease(9, group="late").ids == ["a", "b"]
    assert world.lease(9).ids == []
    assert world.replay() == (2, 2)
    assert world.state()["pending"] == {"a": "ba", "b": "ba"}


def test_a_second_replay_in_the_same_millisecond_has_numbers_of_its_own(world: World) -> None:
    world.subscribe()
    keeping(world)
    consumed(world, "a")
    for number in (START_MS + 1, START_MS + 2):
        assert world.replay() == (1, 1)
        assert world.lease().numbers == [(number, 1)]
        assert world.succeed(Receipt("a", number)) == ["OK"]


def test_a_later_ordered_group_gets_a_message_group_as_it_was_published(world: World) -> None:
    world.subscribe()
    keeping(world)
    world.publish(*sent("abc"))
    receipts = world.leased(*"abc", publish=False)
    for receipt in reversed(receipts):
        assert world.succeed(receipt) == ["OK"]
    world.subscribe("late", ordered=True)
    assert world.replay("late", all_groups=True) == (3, 3)
    assert world.lease(9, group="late").ids == ["a"]


def test_order_in_a_message_group_is_kept_also_before_what_is_unfinished(world: World) -> None:
    world.subscribe(ordered=True)
    keeping(world)
    world.publish(*(prepared(i, group="x") for i in ("a", "b", "c", "d")))
    for id_ in ("a", "b"):
        assert world.succeed(*world.leased(id_, publish=False)) == ["OK"]
    assert world.replay(limit=1) == (1, 1)
    assert world.replay(limit=1) == (1, 1)
    seen = []
    for _ in range(4):
        leased = world.lease()
        seen += leased.ids
        world.succeed(Receipt(leased.ids[0], leased.numbers[0][0]))
    assert seen == ["c", "a", "b", "d"]


@pytest.mark.parametrize("end", ["dead", "committed", "purged", "ended by hand"])
def test_a_redriven_message_leaves_the_order_behind_those_that_were_replayed(
    world: World, end: str
) -> None:
    world.subscribe(ordered=True)
    keeping(world)
    world.publish(*sent("ab"))
    world.lease()
    world.fail(failure("a", level=-1))
    assert world.lease().ids == ["b"]
    world.redrive("a")
    world.succeed(Receipt("b", 1))
    world.replay()
    assert line(world) == ["x2b", "x3a"]
    if end == "ended by hand":
        assert world.end_by_hand("a").gone == 1
    else:
        leased = world.lease()
        receipt = Receipt("a", leased.numbers[0][0])
        if end == "dead":
            world.fail(failure("a", receipt.lease_no, level=-1))
        elif end == "committed":
            assert world.succeed(receipt) == ["OK"]
        else:
            assert world.purge("a", place="inflight") == ["OK"]
    assert line(world) == ["x2b"]
    assert world.lease().ids == ["b"]
    assert world.findings() == []
    if end in ("dead", "ended by hand"):
        assert world.state()["message_groups"]["a"] == "0000000000000001x"
    if end == "committed":
        world.replay()
        assert line(world) == ["x1a", "x2b"]


def test_a_redrive_gives_a_message_a_number_in_its_own_group_alone(world: World) -> None:
    world.subscribe("g", ordered=True)
    world.subscribe("h", ordered=True)
    world.publish(*sent("ab"))
    for group in "gh":
        world.lease(group=group)
        world.fail(failure("a", level=-1), group=group)
        world.redrive("a", group=group)
    assert line(world, "g") == ["x2b", "x3a"]
    assert line(world, "h") == ["x2b", "x4a"]
    assert world.findings() == []
    for group in "gh":
        for id_, lease_no in (("b", 1), ("a", 3)):
            assert world.lease(group=group).ids == [id_]
            assert world.succeed(Receipt(id_, lease_no), group=group) == ["OK"]
    assert not {"g:line", "h:line", "message_groups", "bodies"} & world.state().keys()


def test_message_keys_are_found_again(world: World) -> None:
    world.subscribe()
    keeping(world)
    world.publish(prepared("a", keys=("k1", "k2")))
    before = world.state()
    world.succeed(*world.leased("a", publish=False))
    assert "keyed" not in world.state()
    world.replay()
    after = world.state()
    assert (after["keyed"], after["message_keys"]) == (before["keyed"], before["message_keys"])


def test_a_large_body_is_large_again_and_pages_are_bounded_in_bytes(world: World) -> None:
    world.subscribe()
    keeping(world, keep_bytes=100 * MB)
    ids = [f"m{n}" for n in range(5)]
    for id_ in ids:
        world.publish(prepared(id_, b"x" * (MB // 2 - 100)))
        world.succeed(*world.leased(id_, publish=False))
    sizes = world.state().get("big")
    assert sizes is None
    assert [world.replay() for _ in range(4)] == [(2, 2), (2, 2), (1, 1), (0, 0)]
    assert world.state()["big"].keys() == set(ids)


def test_what_was_published_again_under_its_id_is_left_alone(world: World) -> None:
    world.subscribe()
    keeping(world)
    consumed(world, "a")
    world.client.hset(world.keys.bodies, "a", b"another life")
    world.client.rpush(world.group().ready, "a")
    assert world.replay() == (1, 0)
    assert world.state()["bodies"] == {"a": "another life"}


def test_the_bytes_of_what_is_kept_are_counted_as_it_comes_and_goes(world: World) -> None:
    def counted_bytes() -> int:
        return int(world.client.hget(world.keys.meta, "kept_bytes"))

    world.subscribe()
    keeping(world)
    consumed(world, "a")
    each = counted_bytes()
    consumed(world, "b")
    assert counted_bytes() == 2 * each
    consumed(world, "b")  # a second life takes the place of the first
    assert counted_bytes() == 2 * each
    assert world.replay(limit=1) == (1, 1)
    assert counted_bytes() == each


def test_sweep_forgets_what_is_kept_by_time(world: World) -> None:
    world.subscribe()
    keeping(world)
    consumed(world, "a")
    world.advance(HOUR // 2)
    consumed(world, "b")
    assert world.sweep(groups=["g"])[:2] == (0, HOUR // 2)
    world.advance(HOUR // 2 + 1)
    world.sweep(groups=["g"])
    assert world.state()["kept"].keys() == world.state()["g:consumed"].keys() == {"b"}
    assert int(world.client.hget(world.keys.meta, "kept_bytes")) > 0
    world.advance(HOUR)
    world.sweep(groups=["g"])
    assert {"kept", "kept_bodies", "g:consumed"}.isdisjoint(world.state())
    assert not world.client.hexists(world.keys.meta, "kept_bytes")


def test_a_sweep_frees_no_more_than_so_many_bytes(world: World) -> None:
    world.subscribe()
    keeping(world, keep_bytes=100 * MB)
    for id_ in "abc":
        world.publish(prepared(id_, b"x" * (9 * MB)))
        world.succeed(*world.leased(id_, publish=False))
    world.advance(HOUR + 1)
    assert world.sweep(groups=["g"]).next_ms == 0
    assert world.state()["kept"].keys() == {"c"}


def test_sweep_forgets_what_a_group_consumed_before_others(world: World) -> None:
    world.subscribe()
    world.subscribe("h")
    keeping(world)
    consumed(world, "a")
    world.advance(HOUR + 1)
    world.sweep(groups=["g", "h"])
    assert "g:consumed" not in world.state()


def test_sweep_forgets_the_oldest_where_they_are_too_many_bytes(world: World) -> None:
    world.subscribe()
    keeping(world, keep_bytes=3000)
    for id_ in "abcd":
        world.publish(prepared(id_, b"x" * 1000))
        world.succeed(*world.leased(id_, publish=False))
        world.advance(1)
    world.sweep(groups=["g"])
    assert world.state()["kept"].keys() == world.state()["g:consumed"].keys() == {"c", "d"}


def test_nothing_is_kept_any_more_where_it_is_turned_off(world: World) -> None:
    world.subscribe()
    keeping(world)
    consumed(world, "a")
    keeping(world, keep_ms=0)
    consumed(world, "b")
    world.advance(1)
    world.sweep(groups=["g"])
    assert {"kept", "kept_bodies", "g:consumed"}.isdisjoint(world.state())


@pytest.mark.parametrize("count", [1, 75])
def test_a_batch_is_kept_whole(world: World, count: int) -> None:
    world.subscribe()
    keeping(world)
    consumed(world, *(f"m{n:03}" for n in range(count)))
    assert world.replay() == (count, count)
