"""repair, reorder, adopt, tidy, each in detail: what is right is left alone."""

from rqretry.protocol import repair
from tests.lua.damages import busy
from tests.lua.test_feed_dlq_group import feed, keys_of, view
from tests.lua.test_repair import in_order
from tests.support.builders import SECOND, failure
from tests.support.repairing import adopt, reorder, repair_now, tidy
from tests.support.world import START_MS, World

A, B = "x\x000000000000000001a", "x\x000000000000000002b"
C = "y\x000000000000000003c"
"""The messages of `in_order` as members of their lines."""


# -- a group's places


def test_only_the_head_of_a_line_is_put_back(world: World) -> None:
    in_order(world)
    world.damage().delete(world.group().ready)
    with world.changes() as changed:
        assert repair_now(world, "put_back", "b") == []
    assert changed == {}
    with world.changes() as changed:
        assert repair_now(world, "put_back", "a") == ["a"]
    assert changed == {
        "g:ready": ["a"],
        "g:attempts": {"a": "2:1:0:0"},
        "g:wake": {"1": 0},
        "events": ["repair g ops a put_back"],
    }


def test_what_waits_in_line_under_the_number_of_a_redrive_is_not_put_back(world: World) -> None:
    in_order(world)
    world.leased("a", "c", publish=False)
    world.fail(failure("a", level=-1))
    assert world.redrive("a") == ["OK"]
    world.damage()
    assert world.state()["g:heads"] == {"x": "b", "y": "c"}
    with world.changes() as changed:
        assert repair_now(world, "put_back", "a") == []
        assert repair_now(world, "numbers", "a") == []
    assert changed == {}


def test_a_view_has_its_dead_letter_put_back_as_long_as_it_is_dead(world: World) -> None:
    view(world)
    world.dead_letter("a", "b", "c")
    feed(world)
    keys = keys_of(world)
    world.damage().delete(keys.ready)
    world.client.zrem(keys.dead, "b")
    world.client.hdel(keys.deaths, "c")
    command = repair.repair_places(keys, "put_back", ["a", "b", "c"], actor="ops")
    with world.changes() as changed:
        assert world.run(command).repaired == ["a"]
    assert changed["v:ready"] == ["a"]


def test_settle_leaves_nothing_of_a_message_that_is_finished_with(world: World) -> None:
    world.subscribe("g")
    world.subscribe("h")
    world.leased("a")
    world.fail(failure("a"))
    world.damage().hset(world.keys.pending, "a", "b")
    state = world.state()
    assert "a" in state["g:attempts"]
    assert "a" in state["g:failures"]
    assert repair_now(world, "settle", "a") == ["a"]
    assert not {"g:attempts", "g:failures", "g:delay:3"} & world.state().keys()


def test_settle_lets_the_line_go_on_behind_a_dead_letter(world: World) -> None:
    in_order(world, "g")
    world.damage().zadd(world.group().dead, {"a": START_MS})
    world.client.hset(world.group().deaths, "a", "1 failure")
    assert repair_now(world, "settle", "a") == ["a"]
    state = world.state()
    assert state["g:heads"] == {"x": "b", "y": "c"}
    assert state["g:ready"] == ["c", "b"]
    assert state["g:line"] == {B: 0, C: 0}


def test_settle_keeps_the_place_in_line_of_who_is_in_flight(world: World) -> None:
    in_order(world, "g")
    world.leased("a", "c", publish=False)
    world.damage().zadd(world.group().levels[5], {"a": START_MS})
    assert repair_now(world, "settle", "a") == ["a"]
    state = world.state()
    assert state["g:heads"] == {"x": "a", "y": "c"}
    assert state["g:line"] == {A: 0, B: 0, C: 0}
    assert state["g:inflight"].keys() == {"a", "c"}


def test_a_new_death_reports_how_many_attempts_there_were(world: World) -> None:
    world.subscribe()
    world.leased("a")
    world.fail(failure("a"))
    world.advance(10 * SECOND)
    world.promote()
    world.leased("a", publish=False)
    world.fail(failure("a", 2, level=-1))
    assert world.state()["g:graves"] == {"a": "2 failure"}
    world.damage().delete(world.group().deaths)
    assert repair_now(world, "cause", "a") == ["a"]
    assert world.state()["g:graves"] == {"a": "2 unknown"}


def test_the_index_is_written_and_the_group_woken_where_it_was_late_and_only_there(
    world: World,
) -> None:
    busy(world)
    with world.changes() as changed:
        assert repair_now(world, "index") == []
    assert changed == {}
    due_ms = START_MS + 10 * SECOND
    world.damage().zadd(world.group().due, {"3": due_ms + 1})
    with world.changes() as changed:
        assert repair_now(world, "index") == ["3"]
    assert changed == {"g:due": {"3": due_ms}, "g:wake": {"1": 0}}


# -- lines


def test_pass_takes_who_is_over_out_of_the_line_without_being_its_head(world: World) -> None:
    in_order(world)
    world.leased("a", "c", publish=False)
    world.fail(failure("c", level=-1))
    world.damage().zadd(world.group().order, {C: 0})
    with world.changes() as changed:
        assert reorder(world, "pass", C) == [C]
    assert changed == {"g:line": {C: None}, "events": ["repair g ops c pass"]}


def test_turn_sends_who_is_listed_out_of_turn_back_into_the_line(world: World) -> None:
    in_order(world)
    world.damage().zrem(world.group().order, B)
    world.client.rpush(world.group().ready, "b")
    world.client.rpush(world.group().retry, "b")
    with world.changes() as changed:
        assert reorder(world, "turn", "b") == ["b"]
    assert changed == {
        "g:line": {B: 0},
        "g:ready": ["a", "c"],
        "g:retry": None,
        "events": ["repair g ops b turn"],
    }


def test_turn_makes_who_is_out_the_head_where_there_is_none(world: World) -> None:
    in_order(world)
    with world.changes() as changed:
        assert reorder(world, "turn", "a", "c") == []
    assert changed == {}
    world.damage().delete(world.group().heads)
    with world.changes() as changed:
        assert reorder(world, "turn", "a") == ["a"]
    assert changed == {"g:heads": {"x": "a"}, "events": ["repair g ops a turn"]}


# -- who owes a message


def test_what_is_scheduled_or_half_is_owed_by_nobody_yet(world: World) -> None:
    busy(world)
    world.damage().hset(world.keys.bodies, "half", "x")
    world.client.hset(world.keys.half_of, "half", "t 00000001 half  ")
    with world.changes() as changed:
        assert adopt(world, "scheduled", "half") == []
    assert changed == {}


def test_who_waits_in_the_line_of_the_only_group_needs_no_entry(world: World) -> None:
    in_order(world, "g")
    with world.changes() as changed:
        assert adopt(world, "a", "b", "c") == []
    assert changed == {}


def test_bytes_of_no_group_go_with_the_message_to_the_backlog(world: World) -> None:
    world.publish("a")
    world.damage().delete(world.keys.backlog)
    world.client.hset(world.keys.pending, "a", "\x7f")
    with world.changes() as changed:
        assert adopt(world, "a") == ["a"]
    assert changed == {
        "backlog": ["a"],
        "pending": {"a": None},
        "events": ["repair  ops a adopt"],
    }


# -- what no group owns


def test_tidy_looks_at_every_id_that_is_named(world: World) -> None:
    busy(world)
    world.damage().hset(world.keys.pending, mapping={"y": "a", "z": "a"})
    assert tidy(world, "bodies", "y", "z") == ["y", "z"]
    assert not {"y", "z"} & world.state()["pending"].keys()


def test_keys_alone_of_a_message_that_is_not_stored_count_as_tidied(world: World) -> None:
    busy(world)
    state = world.state()
    world.damage().hset(world.keys.keyed, "z", "k")
    world.client.zadd(world.keys.message_keys, {"k\0z": 0})
    assert tidy(world, "bodies", "z") == ["z"]
    assert world.state() == state


def test_a_key_that_leads_to_a_message_without_it_goes(world: World) -> None:
    busy(world)
    state = world.state()
    world.damage().zadd(world.keys.message_keys, {"l\0scheduled": 0})
    assert tidy(world, "keys", "l\0scheduled") == ["l\0scheduled"]
    assert world.state() == state


def test_an_id_that_is_remembered_is_still_to_be_forgotten(world: World) -> None:
    world.damage().hset(world.keys.ids, "a", "digest")
    world.client.zadd(world.keys.id_expiry, {"a": START_MS, "z": START_MS})
    with world.changes() as changed:
        assert tidy(world, "memory", "a", "z") == ["z"]
    assert changed == {"id_expiry": {"z": None}}
