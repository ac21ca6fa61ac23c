"""dead_letter: ready | waiting_retry -> dead, by an operator."""

from rqretry.core.failure_record import BY_HAND, describe_cause, fingerprint_of_text
from rqretry.core.receipt import Receipt
from rqretry.protocol.operate import PurgeCount
from tests.support.builders import SECOND, failure, first, prepared
from tests.support.world import START_MS, World

RECORD = describe_cause(BY_HAND, "no card", "ops")
KIND = fingerprint_of_text(BY_HAND, "no card")


def member(id_: str, at: int = START_MS) -> str:
    return f"{KIND}\0{at:016}\0{id_}"


def test_what_is_ready_is_dead_without_an_attempt_and_the_others_keep_their_order(
    world: World,
) -> None:
    world.subscribe()
    world.publish("a", "b", "c", "d")
    with world.changes() as changed:
        assert world.end_by_hand("a", "b", "c", staying="a c") == PurgeCount(1, 3)
    assert changed == {
        "g:ready": ["d", "a", "c"],
        "g:dead": {"b": START_MS},
        "g:graves": {"b": f"0 by_hand {KIND}"},
        "g:fingerprints": {member("b"): 0},
        "g:attempts": {"b": "1:1:0:0"},
        "g:failures": {"b": f"0 {START_MS} {RECORD}\n"},
        "counters": {"dead_letter:g": 1, "dead:g": 1},
        "events": ["dead_letter g ops b 0,D"],
    }
    assert world.findings() == []


def test_what_waits_for_a_retry_has_made_the_attempts_that_it_has_made(world: World) -> None:
    world.subscribe()
    world.fail(failure(world.leased("a")[0].id, delay_ms=SECOND))
    with world.changes() as changed:
        assert world.end_by_hand("a", "unknown", place="delay:1") == PurgeCount(1, 2)
    assert changed["g:delay:1"] == {"a": None}
    assert changed["g:graves"] == {"a": f"1 by_hand {KIND}"}
    assert changed["g:attempts"] == {"a": "2:1:0:0"}
    before, last = changed["g:failures"]["a"].splitlines()
    assert (before[0], last) == ("1", f"1 {START_MS} {RECORD}")
    assert world.redrive("a") == ["OK"]
    assert world.succeed(Receipt("a", 1), Receipt("a", 2)) == ["STALE"] * 2
    assert world.lease().numbers == [(3, 1)]


def test_what_is_in_flight_or_over_is_left_alone_and_leaves_the_list(world: World) -> None:
    world.subscribe("g")
    world.subscribe("h")
    world.dead_letter("dead")
    world.leased("inflight")
    world.succeed(*world.leased("done"))
    world.client.rpush(world.group().ready, "inflight", "dead", "done")
    with world.changes() as changed:
        assert world.end_by_hand("inflight", "dead", "done") == PurgeCount(0, 3)
    assert changed == {"g:ready": None}
    with world.changes() as changed:
        assert world.end_by_hand("inflight", "done", place="inflight") == PurgeCount(0, 2)
        assert world.end_by_hand("dead", place="dead") == PurgeCount(0, 1)
    assert changed == {}
    assert world.succeed(*first("inflight")) == ["OK"]


def test_what_has_no_body_stays_for_fsck(world: World) -> None:
    world.subscribe()
    world.publish("a", "b")
    world.damaged = True
    world.client.hdel(world.keys.bodies, "a")
    assert world.end_by_hand("a", "b") == PurgeCount(1, 2)
    assert world.state()["g:ready"] == ["a"]


def test_a_window_ends_before_what_the_caller_has_not_looked_at(world: World) -> None:
    world.subscribe()
    world.publish("a", "new", "b")
    assert world.end_by_hand("a", "b") == PurgeCount(1, 1)
    assert world.state()["g:ready"] == ["new", "b"]


def test_the_next_one_of_a_message_group_goes_where_its_head_is_ended(world: World) -> None:
    world.subscribe(ordered=True)
    world.publish(*(prepared(id_, group="x") for id_ in "abcd"))
    world.fail(failure(world.lease().ids[0], delay_ms=SECOND))
    assert world.end_by_hand("x\x000000000000000003c", "x\x000000000000000001a", place="line") == (
        *(1, 2),
    )  # the head is out, and no part of what is blocked
    state = world.state()
    (level,) = [key.removeprefix("g:") for key in state if key.startswith("g:delay")]
    assert (state["g:dead"], state["g:heads"]) == ({"c": START_MS}, {"x": "a"})
    with world.changes() as changed:
        assert world.end_by_hand("a", place=level).gone == 1
    assert (changed["g:ready"], changed["g:heads"]) == (["b"], {"x": "b"})
    assert changed["g:wake"] == {"1": 0}
    assert world.succeed(*world.leased("b", publish=False)) == ["OK"]
    assert world.lease().ids == ["d"]
    assert world.findings() == []


def test_the_body_stays_with_the_other_groups(world: World) -> None:
    world.subscribe("g")
    world.subscribe("h")
    world.publish("a")
    world.end_by_hand("a")
    assert world.succeed(*world.leased("a", group="h", publish=False), group="h") == ["OK"]
    assert world.state()["bodies"].keys() == {"a"}
    assert world.purge("a") == ["OK"]
    assert "bodies" not in world.state()


def test_repeated_it_changes_nothing_and_without_a_group_neither(world: World) -> None:
    world.subscribe()
    world.publish("a")
    assert world.end_by_hand("a").gone == 1
    with world.changes() as changed:
        assert world.end_by_hand("a") == PurgeCount(0, 0)
        assert world.end_by_hand("a", group="nobody") == PurgeCount(0, 0)
    assert changed == {}
