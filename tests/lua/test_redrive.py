"""redrive: dead -> ready."""

from rqretry.core.receipt import Receipt
from tests.support.builders import failure, first
from tests.support.world import START_MS, World

FIRST_LINE = '1 1000000 {"c":"failure"}\n'


def test_redrive_starts_again_at_the_first_attempt_and_keeps_the_lineage(world: World) -> None:
    world.subscribe()
    world.dead_letter("a", "b")
    world.advance(5)
    with world.changes() as changed:
        assert world.redrive("a") == ["OK"]
    assert changed == {
        "g:ready": ["a"],
        "g:dead": {"a": None},
        "g:graves": {"a": None},
        "g:fingerprints": {f"\0{START_MS:016}\0a": None},
        "g:attempts": {"a": "3:1:0:0"},
        "g:failures": {"a": FIRST_LINE + '0 1000005 {"c":"redriven"}\n'},
        "g:wake": {"1": 0},
        "counters": {"redrive:g": 1},
        "events": ["redrive g ops a"],
    }
    assert world.lease().numbers == [(3, 1)]


def test_redrive_leaves_every_old_receipt_stale_for_good(world: World) -> None:
    world.subscribe(max_retries=0)
    world.publish("a")
    for cycle in range(3):
        lease_no = 2 * cycle + 1
        assert world.lease().numbers == [(lease_no, 1)]
        world.fail(failure("a", lease_no))
        assert world.redrive("a") == ["OK"]
    world.lease()
    old = [Receipt("a", n) for n in range(1, 7)]
    assert world.succeed(*old) == ["STALE"] * 6
    assert world.succeed(Receipt("a", 7)) == ["OK"]


def test_redrive_of_what_is_not_dead_is_gone_and_changes_nothing(world: World) -> None:
    world.subscribe()
    world.publish("ready")
    with world.changes() as changed:
        assert world.redrive("ready", "unknown") == ["GONE", "GONE"]
    assert changed == {}


def test_redrive_repeated_and_twice_in_one_call_sends_back_once(world: World) -> None:
    world.subscribe()
    world.dead_letter("a")
    assert world.redrive("a", "a") == ["OK", "GONE"]
    assert world.redrive("a") == ["GONE"]
    assert world.state()["g:ready"] == ["a"]


def test_redrive_of_a_dead_letter_without_a_body_is_gone(world: World) -> None:
    world.subscribe()
    world.dead_letter("a")
    world.damage().hdel(world.keys.bodies, "a")
    with world.changes() as changed:
        assert world.redrive("a") == ["GONE"]
    assert changed == {}


def test_redrive_in_a_partition_that_does_not_know_the_group_is_gone(world: World) -> None:
    world.subscribe()
    world.dead_letter("a")
    world.client.delete(world.group().config)
    with world.changes() as changed:
        assert world.redrive("a") == ["GONE"]
    assert changed == {}


def test_redrive_is_for_this_group_only(world: World) -> None:
    world.subscribe("g")
    world.subscribe("h")
    world.dead_letter("a")
    world.succeed(*world.leased("a", group="h", publish=False), group="h")
    world.redrive("a")
    assert world.lease(group="h").ids == []
    assert world.lease(group="g").ids == ["a"]


def test_redrive_wakes_only_where_the_ready_list_was_empty(world: World) -> None:
    world.subscribe()
    world.dead_letter("a", "b")
    for id_, wakes in (("a", True), ("b", False)):
        with world.changes() as changed:
            world.redrive(id_)
        assert ("g:wake" in changed) is wakes


def test_redrive_lets_a_message_die_again_with_its_whole_record(world: World) -> None:
    world.subscribe(max_retries=0)
    world.dead_letter("a")
    world.redrive("a")
    world.lease()
    world.fail(failure("a", 3))
    state = world.state()
    assert state["g:dead"] == {"a": START_MS}
    record = state["g:failures"]["a"].splitlines()
    assert [line.split()[0] for line in record] == ["1", "0", "1"]
    assert world.succeed(*first("a")) == ["GONE"]


def test_redrive_with_delays_spreads_the_messages_over_time(world: World) -> None:
    world.subscribe()
    world.dead_letter("a", "b", "c")
    with world.changes() as changed:
        assert world.redrive("a", "b", "c", delays_ms=["", 1000, 7000]) == ["OK"] * 3
    assert changed["g:ready"] == ["a"]
    assert changed["g:delay:1"] == {"b": START_MS + 1000}
    assert changed["g:delay:2"] == {"c": START_MS + 7000}
    assert f"0 {START_MS}+7000 " in changed["g:failures"]["c"]
    assert changed["g:due"] == {"1": START_MS + 1000, "2": START_MS + 7000}
    assert changed["g:dead"] == {"a": None, "b": None, "c": None}
    assert changed["g:wake"] == {"1": 0}
    assert changed["events"] == ["redrive g ops a b c R W,1,1001000 W,2,1007000"]
    world.advance(1000)
    world.promote()
    assert world.lease(prefer="retry").numbers == [(3, 1), (3, 1)]


def test_redrive_with_a_delay_wakes_where_nothing_was_due_earlier(world: World) -> None:
    world.subscribe()
    world.dead_letter("a", "b")
    for id_, delay_ms, wakes in (("a", 2000, True), ("b", 3000, False)):
        with world.changes() as changed:
            world.redrive(id_, delays_ms=[delay_ms])
        assert ("g:wake" in changed) is wakes


def test_redrive_of_a_dead_letter_that_a_cut_call_left_in_flight(world: World) -> None:
    world.subscribe()
    world.dead_letter("a")
    world.client.zadd(world.group().inflight, {"a": START_MS})
    with world.changes() as changed:
        assert world.redrive("a") == ["OK"]
    assert changed["g:inflight"] == {"a": None}
    assert world.lease().ids == ["a"]
