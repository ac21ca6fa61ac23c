"""The repairs: what was damaged by hand is found, made right, and delivered."""

from rqretry.checks.auditor import ERROR
from rqretry.protocol import repair
from tests.conftest import ServerOf
from tests.lua.conftest import virtual_time, world_on
from tests.lua.damages import busy
from tests.support.builders import SECOND, failure, first, prepared
from tests.support.repairing import adopt, reorder, repair_now, repaired, tidy
from tests.support.world import START_MS, World


def test_put_back_goes_to_the_end_of_ready_under_the_next_lease_number(world: World) -> None:
    world.subscribe("g")
    world.subscribe("h")
    world.leased("a")
    world.publish("b")
    world.damage().zrem(world.group().inflight, "a")
    with world.changes() as changed:
        assert repair_now(world, "put_back", "a", "b", "nobody") == ["a"]
    assert changed == {
        "g:ready": ["b", "a"],
        "g:attempts": {"a": "2:1:0:0"},
        "g:wake": {"1": 0},
        "events": ["repair g ops a put_back"],
    }
    assert world.succeed(*first("a")) == ["STALE"]
    assert world.lease().numbers == [(1, 1), (2, 1)]


def test_put_back_keeps_the_attempts(world: World) -> None:
    world.subscribe("g")
    world.subscribe("h")
    world.leased("a")
    world.fail(failure("a"))
    world.damage().delete(world.group().levels[2], world.group().due)
    assert repair_now(world, "put_back", "a") == ["a"]
    assert world.state()["g:attempts"] == {"a": "3:2:0:0"}
    assert world.lease().numbers == [(3, 2)]


def test_put_back_changes_nothing_where_the_group_has_the_message(world: World) -> None:
    busy(world)
    with world.changes() as changed:
        assert (
            repair_now(world, "put_back", "ready", "inflight", "waiting", "dead", "scheduled") == []
        )
    assert changed == {}


def test_settle_keeps_the_lease_of_a_worker_that_is_at_work(world: World) -> None:
    busy(world)
    world.damage().zadd(world.group().levels[5], {"inflight": START_MS})
    world.client.rpush(world.group().retry, "inflight")
    with world.changes() as changed:
        assert repair_now(world, "settle", "inflight") == ["inflight"]
    assert changed == {
        "g:delay:6": {"inflight": None},
        "g:retry": None,
        "g:wake": {"1": 0},
        "events": ["repair g ops inflight settle"],
    }
    assert world.succeed(*first("inflight")) == ["OK"]


def test_settle_keeps_the_later_of_two_due_times(world: World) -> None:
    busy(world)
    world.damage().zadd(world.group().levels[0], {"waiting": START_MS + 1})
    assert repair_now(world, "settle", "waiting") == ["waiting"]
    state = world.state()
    assert "g:delay:1" not in state
    assert state["g:delay:3"] == {"waiting": START_MS + 10 * SECOND}


def test_settle_keeps_a_dead_letter_and_owes_it_again(world: World) -> None:
    busy(world)
    world.damage().hset(world.keys.pending, "dead", "b")
    with world.changes() as changed:
        assert repair_now(world, "settle", "dead") == ["dead"]
    assert changed["pending"] == {"dead": "ba"}
    assert world.findings() == []
    assert world.redrive("dead") == ["OK"]
    assert world.lease(1).ids == ["ready"]
    assert world.lease(1).ids == ["dead"]


def test_settle_leaves_one_of_many_copies_in_a_list(world: World) -> None:
    world.subscribe()
    world.publish("a", "b")
    world.damage().rpush(world.group().ready, "a", "b", "a")
    world.client.rpush(world.group().retry, "a", "a")
    assert repair_now(world, "settle", "a", "b") == ["a", "b"]
    state = world.state()
    assert (state["g:ready"], state.get("g:retry")) == (["a", "b"], None)
    with world.changes() as changed:
        assert repair_now(world, "settle", "a", "b") == []
    assert changed == {}


def test_settle_in_the_retry_lane_alone_keeps_the_first_copy(world: World) -> None:
    world.subscribe()
    world.publish("a")
    world.damage().delete(world.group().ready)
    world.client.rpush(world.group().retry, "a", "a")
    assert repair_now(world, "settle", "a") == ["a"]
    assert world.state()["g:retry"] == ["a"]


def test_a_lost_body_takes_the_message_out_of_every_place_and_is_counted(world: World) -> None:
    busy(world)
    world.damage().hdel(world.keys.bodies, "dead", "waiting")
    with world.changes() as changed:
        assert repair_now(world, "lost", "dead", "waiting", "ready") == ["dead", "waiting"]
    assert {key: changed[key] for key in changed if key not in ("g:attempts", "g:failures")} == {
        "g:dead": {"dead": None},
        "g:graves": {"dead": None},
        "g:fingerprints": {f"\0{START_MS:016}\0dead": None},
        "g:delay:3": {"waiting": None},
        "pending": {"dead": None, "waiting": None},
        "counters": {"orphan:g": 2},
        "events": ["repair g ops dead waiting lost lost"],
    }
    state = world.state()
    assert not {"dead", "waiting"} & {*state.get("g:attempts", ()), *state.get("g:failures", ())}


def test_a_dead_letter_without_a_cause_gets_one(world: World) -> None:
    busy(world)
    world.damage().delete(world.group().deaths)
    assert repair_now(world, "cause", "dead", "ready") == ["dead"]
    assert world.state()["g:graves"] == {"dead": "1 unknown"}
    assert repair_now(world, "cause", "dead") == []


def test_numbers_of_a_message_that_the_group_will_get_back_stay(world: World) -> None:
    busy(world)
    world.damage().zrem(world.group().levels[2], "waiting")
    assert repair_now(world, "numbers", "waiting") == []
    assert repair_now(world, "put_back", "waiting") == ["waiting"]
    assert world.state()["g:attempts"]["waiting"] == "3:2:0:0"


def test_a_group_without_its_configuration_is_left_alone(world: World) -> None:
    busy(world)
    world.damage().delete(world.group().config)
    world.client.lrem(world.group().ready, 0, "ready")
    with world.changes() as changed:
        assert repair_now(world, "put_back", "ready") == []
        assert adopt(world, "ready") == []
        assert reorder(world, "go_on", "x") == []
    assert changed == {}


# -- who owes a message


def test_a_message_that_nobody_has_is_owed_by_the_groups_of_its_tag(world: World) -> None:
    world.subscribe("g")
    world.subscribe("h")
    world.publish("a")
    for name in "gh":
        world.damage().delete(world.group(name).ready)
    world.client.delete(world.keys.pending)
    with world.changes() as changed:
        assert adopt(world, "a") == ["a"]
    assert changed == {"pending": {"a": "ab"}, "events": ["repair  ops a adopt"]}
    with world.changes() as changed:
        assert adopt(world, "a") == []
    assert changed == {}


def test_before_there_is_a_group_it_goes_to_the_backlog(world: World) -> None:
    world.publish("a")
    world.damage().delete(world.keys.backlog)
    assert adopt(world, "a", "nobody") == ["a"]
    assert world.state()["backlog"] == ["a"]
    assert adopt(world, "a") == []
    world.subscribe()
    assert world.lease().ids == ["a"]


def test_a_message_of_the_only_group_needs_no_entry(world: World) -> None:
    world.subscribe()
    world.publish("a")
    world.leased("a", publish=False)
    with world.changes() as changed:
        assert adopt(world, "a") == []
    assert changed == {}


def test_what_two_groups_have_is_owed_by_both(world: World) -> None:
    world.subscribe("g")
    world.subscribe("h")
    world.publish("a")
    world.damage().delete(world.keys.pending)
    assert [(f.severity, f.kind, f.id) for f in world.findings()] == [(ERROR, "unowed", "a")]
    assert adopt(world, "a") == ["a"]
    assert world.state()["pending"] == {"a": "ab"}
    assert world.succeed(*world.leased("a", publish=False)) == ["OK"]
    assert world.lease(group="h").ids == ["a"]


def test_a_group_that_leaves_keeps_its_byte(world: World) -> None:
    busy(world)
    world.damage().hset(world.keys.pending, "ready", "ab\x7f")
    with world.changes() as changed:
        assert repaired(world, leaving=True) == []
    assert changed == {}


# -- ordered groups


def in_order(world: World, *names: str) -> None:
    """Messages a and b of message group x, and c of y; a and c are out."""
    for name in names or ("g", "h"):
        world.subscribe(name, ordered=True)
    world.publish(prepared("a", group="x"), prepared("b", group="x"), prepared("c", group="y"))


def test_a_line_whose_first_one_is_over_goes_on_with_the_next(world: World) -> None:
    in_order(world, "g")
    world.damage().hdel(world.keys.bodies, "a")
    assert repair_now(world, "lost", "a") == ["a"]
    state = world.state()
    assert state["g:heads"] == {"x": "b", "y": "c"}
    assert sorted(state["g:ready"]) == ["b", "c"]
    assert world.findings() == []


def test_pass_takes_a_dead_one_out_of_the_line_and_lets_the_next_go(world: World) -> None:
    in_order(world)
    world.leased("a", "c", publish=False)
    world.fail(failure("c", level=-1))
    member = "y\x000000000000000003c"
    world.damage().zadd(world.group().order, {member: 0})
    world.client.hset(world.group().heads, "y", "c")
    assert reorder(world, "pass", member, "x\x000000000000000002b", "nonsense") == [member]
    state = world.state()
    assert "y" not in state["g:heads"]
    assert member not in state["g:line"]


def test_an_unordered_group_has_no_lines_to_align(world: World) -> None:
    busy(world)
    with world.changes() as changed:
        assert reorder(world, "turn", "ready") == []
    assert changed == {}


# -- what no group owns


def test_tidy_changes_nothing_that_is_right(world: World) -> None:
    busy(world)
    state = world.state()
    with world.changes() as changed:
        assert tidy(world, "bodies", *state["bodies"]) == []
        assert tidy(world, "memory", *state["ids"]) == []
        assert tidy(world, "scheduled", *state["scheduled"]) == []
        assert tidy(world, "backlog", "ready") == []
        assert tidy(world, "keys", "k\0scheduled", "m\0scheduled") == []
        assert tidy(world, "half", "ready", "t 1 ready  ") == []
        assert tidy(world, "halves", "ready", "t 1 ready  ") == []
    assert changed == {}


def test_a_scheduled_message_with_a_tag_is_found_by_its_member(world: World) -> None:
    world.subscribe(tags="x || y")
    world.publish(prepared("a", delay_ms=SECOND, tag="x"))
    world.damage().hdel(world.keys.bodies, "a")
    assert [step for step, *_ in repaired(world)] == ["tidy scheduled"]
    assert "scheduled" not in world.state()


def test_half_and_halves_make_a_transaction_list_what_is_a_half_of_it(world: World) -> None:
    member = "t 00000001 a  "
    world.damage().hset(world.keys.half_of, "a", member)
    world.client.zadd(world.keys.halves, {"t 00000002 b  ": 0})
    assert tidy(world, "half", "a", member) == ["a"]
    assert tidy(world, "halves", "b", "t 00000002 b  ") == ["b"]
    assert world.state()["halves"] == {member: 0}
    assert tidy(world, "half", "a", member) == []
    assert tidy(world, "halves", "a", member) == []


def test_a_call_searches_a_bounded_part_and_says_how_many_it_looked_at(
    server_of: ServerOf,
) -> None:
    world = world_on(server_of, "redis-7", virtual_time())
    world.subscribe("g")
    world.subscribe("h")
    for start in range(0, 10_000, 500):
        world.publish(*(f"m{n}" for n in range(start, start + 500)))
    ids = [f"m{n}" for n in range(40)]
    world.damage().ltrim(world.group().ready, 40, -1)
    looked, repaired_state = world.run(
        repair.repair_places(world.group(), "put_back", ids, actor="ops")
    )
    assert 1 <= looked < 40
    assert repaired_state == ids[:looked]
    (done, *_) = repaired(world)
    assert done[:2] == ("repair put_back", "g")
    assert sorted(done.ids) == sorted(ids[looked:])
    assert world.findings() == []


def test_what_takes_too_long_to_look_for_is_left_until_its_list_is_shorter(
    server_of: ServerOf,
) -> None:
    world = world_on(server_of, "redis-7", virtual_time())
    world.subscribe("g")
    world.subscribe("h")
    world.publish("lost", "dead")
    world.lease()
    world.fail(failure("dead", level=-1))
    world.damage().delete(world.group().inflight)
    world.client.hdel(world.group().deaths, "dead")
    for at in range(0, 210_000, 30_000):
        world.client.rpush(world.group().ready, *(f"m{at + n}" for n in range(30_000)))
    assert repair_now(world, "put_back", "lost") == []
    assert repair_now(world, "cause", "dead") == ["dead"]
    world.client.ltrim(world.group().ready, 0, 150_000)
    assert repair_now(world, "put_back", "lost") == ["lost"]
