"""expire: inflight past its deadline -> ready (the first time) | waiting_retry | dead."""

from rqretry.core.failure_record import fingerprint_of_text
from rqretry.core.receipt import Receipt
from tests.support.builders import HOUR, MINUTE, SECOND, failure
from tests.support.world import START_MS, VISIBILITY_MS, World

DEADLINE = START_MS + VISIBILITY_MS
RECORD = '{"c":"expired"}'
FINGERPRINT = fingerprint_of_text("expired", "")


def test_expire_takes_nothing_before_the_deadline(world: World) -> None:
    world.subscribe()
    world.leased("a")
    world.set_time(DEADLINE - 1)
    with world.changes() as changed:
        assert world.expire()[:3] == (False, DEADLINE - 1, 0)
    assert changed == {}


def test_expire_the_first_time_makes_the_message_ready_at_once_and_counts(world: World) -> None:
    world.subscribe()
    world.leased("a", "b")
    world.set_time(DEADLINE)
    with world.changes() as changed:
        assert world.expire()[:3] == (False, DEADLINE, 2)
    assert changed == {
        "g:retry": ["a", "b"],
        "g:attempts": {"a": "2:2:1:0", "b": "2:2:1:0"},
        "g:failures": dict.fromkeys("ab", f"1 {DEADLINE}+0 {RECORD}\n"),
        "g:inflight": {"a": None, "b": None},
        "g:wake": {"1": 0},
        "counters": {"expire:g": 2},
        "events": ["expire g w1 a b 1,R 1,R"],
    }
    assert world.lease().numbers == [(2, 2), (2, 2)]


def test_expire_again_waits_by_the_ladder(world: World) -> None:
    world.subscribe()
    world.leased("a")
    world.set_time(DEADLINE)
    world.expire()
    world.lease()
    world.advance(VISIBILITY_MS)
    due = world.now + 30 * SECOND
    with world.changes() as changed:
        assert world.expire().moved == 1
    assert changed == {
        "g:delay:4": {"a": due},
        "g:due": {"4": due},
        "g:attempts": {"a": "3:3:2:0"},
        "g:failures": {"a": f"1 {DEADLINE}+0 {RECORD}\n2 {world.now}+30000 {RECORD}\n"},
        "g:inflight": {"a": None},
        "g:wake": {"1": 0},
        "counters": {"expire:g": 1},
        "events": [f"expire g w1 a 2,W,4,{due}"],
    }


def test_expire_the_first_time_after_failures_is_still_at_once(world: World) -> None:
    world.subscribe()
    world.leased("a")
    world.fail(failure("a", level=1))
    world.advance(SECOND)
    world.promote()
    world.lease()
    world.advance(VISIBILITY_MS)
    world.expire()
    assert world.state()["g:retry"] == ["a"]
    assert world.state()["g:attempts"] == {"a": "3:3:1:0"}


def test_expire_of_the_last_attempt_is_dead_at_once(world: World) -> None:
    world.subscribe(max_retries=0)
    world.leased("a")
    world.set_time(DEADLINE)
    with world.changes() as changed:
        assert world.expire() == (False, DEADLINE, 1, ("a",))
    assert changed == {
        "g:dead": {"a": DEADLINE},
        "g:graves": {"a": f"1 expired {FINGERPRINT}"},
        "g:fingerprints": {f"{FINGERPRINT}\0{DEADLINE:016}\0a": 0},
        "g:attempts": {"a": "2:1:1:0"},
        "g:failures": {"a": f"1 {DEADLINE} {RECORD}\n"},
        "g:inflight": {"a": None},
        "counters": {"expire:g": 1, "dead:g": 1},
        "events": ["expire g w1 a 1,D"],
    }


def test_expire_of_a_simple_group_is_always_ready_at_once_until_it_is_dead(world: World) -> None:
    world.subscribe(kind="simple", max_retries=3)
    world.publish("a")
    for attempt in (1, 2, 3):
        assert world.lease(visibility_ms=SECOND).numbers == [(attempt, attempt)]
        world.advance(SECOND)
        world.expire()
        assert world.state()["g:retry"] == ["a"]
    world.lease(visibility_ms=SECOND)
    world.advance(SECOND)
    world.expire()
    assert world.state()["g:graves"] == {"a": f"4 expired {FINGERPRINT}"}
    assert world.lease().ids == []


def test_expire_jitters_the_ladder(world: World) -> None:
    world.subscribe(jitter="0.1")
    world.leased("a")
    world.client.hset(world.group().attempts, "a", "1:1:1:0")
    world.set_time(DEADLINE)
    world.expire(random=1.0)
    assert world.state()["g:delay:3"] == {"a": DEADLINE + 11 * SECOND}


def test_expire_takes_a_bounded_batch_oldest_first(world: World) -> None:
    world.subscribe()
    world.publish("a", "b", "c")
    for visibility_ms in (3000, 1000, 2000):
        world.lease(1, visibility_ms=visibility_ms)
    world.advance(MINUTE)
    assert world.expire(limit=2).moved == 2
    state = world.state()
    assert (state["g:retry"], state["g:inflight"]) == (["b", "c"], {"a": START_MS + 3000})


def test_expire_twice_counts_once(world: World) -> None:
    world.subscribe()
    world.leased("a")
    world.set_time(DEADLINE)
    world.expire()
    with world.changes() as changed:
        assert world.expire().moved == 0
    assert changed == {}


def test_expire_clears_what_has_no_body(world: World) -> None:
    world.subscribe("g")
    world.subscribe("h")
    world.leased("a", "b")
    world.fail(failure("a", level=1))
    world.advance(SECOND)
    world.promote()
    world.lease()
    world.damage().hdel(world.keys.bodies, "a")
    world.advance(VISIBILITY_MS)
    with world.changes() as changed:
        assert world.expire().moved == 2
    assert changed == {
        "pending": {"a": None},
        "g:attempts": {"a": None, "b": "2:2:1:0"},
        "g:failures": {"a": None, "b": f"1 {world.now}+0 {RECORD}\n"},
        "g:inflight": {"a": None, "b": None},
        "g:retry": ["b"],
        "g:wake": {"1": 0},
        "counters": {"orphan:g": 1, "expire:g": 1},
        "events": ["expire g w1 b 1,R"],
    }


def test_expire_of_only_what_has_no_body_is_counted_as_done(world: World) -> None:
    world.subscribe()
    world.leased("a")
    world.damage().hdel(world.keys.bodies, "a")
    world.set_time(DEADLINE)
    assert world.expire().moved == 1
    assert "g:inflight" not in world.state()
    assert world.expire().moved == 0


def test_expire_clears_what_this_group_has_committed_and_another_still_owes(world: World) -> None:
    world.subscribe("g", max_retries=0)
    world.subscribe("h")
    world.leased("a")
    world.client.hset(world.keys.pending, "a", "b")
    world.set_time(DEADLINE)
    with world.changes() as changed:
        assert world.expire().moved == 1
    assert changed == {"g:inflight": {"a": None}}
    assert world.lease(group="h").ids == ["a"]


def test_expire_clears_a_dead_letter_that_is_still_in_flight(world: World) -> None:
    world.subscribe()
    world.dead_letter("a")
    world.client.zadd(world.group().inflight, {"a": DEADLINE})
    world.set_time(DEADLINE)
    with world.changes() as changed:
        assert world.expire().moved == 1
    assert changed == {"g:inflight": {"a": None}}


def test_expire_without_a_configuration_touches_nothing(world: World) -> None:
    world.subscribe()
    world.leased("a")
    world.client.delete(world.group().config)
    world.set_time(DEADLINE)
    with world.changes() as changed:
        assert world.expire().moved == 0
    assert changed == {}


def test_expire_waits_for_a_second_look_when_the_clock_jumped_forward(world: World) -> None:
    world.subscribe()
    receipts = world.leased("a", "b")
    seen = world.expire(expected_ms=None).now_ms
    world.advance(5 * MINUTE)
    with world.changes() as changed:
        held = world.expire(expected_ms=seen + SECOND)
    assert held[:3] == (True, world.now, 10 * SECOND)
    assert changed == {"hold": str(world.now + 10 * SECOND)}
    world.renew(receipts[0])  # a live worker renews in the meantime
    world.advance(10 * SECOND - 1)
    assert world.expire(expected_ms=seen + 11 * SECOND)[:3] == (True, world.now, 1)
    world.advance(1)
    assert world.expire(expected_ms=seen + 11 * SECOND)[:3] == (False, world.now, 1)
    assert list(world.state()["g:inflight"]) == ["a"]


def test_expire_waits_for_everybody_while_one_caller_saw_the_jump(world: World) -> None:
    world.subscribe()
    world.leased("a")
    world.advance(5 * MINUTE)
    assert world.expire(expected_ms=START_MS).held
    assert world.expire(expected_ms=None)[:3] == (True, world.now, 10 * SECOND)


def test_expire_holds_no_longer_than_that_once_a_jump_that_was_noted_came_back(
    world: World,
) -> None:
    world.subscribe()
    world.leased("a")
    world.set_time(START_MS + HOUR)
    assert world.expire(expected_ms=START_MS).held
    world.publish("b")  # a first call, which expects nothing, notes it
    world.set_time(START_MS + SECOND)
    for _ in range(10):
        assert world.expire(expected_ms=None).held
        world.advance(SECOND)
    world.advance(SECOND)  # time that is ahead goes slower
    assert world.expire(expected_ms=None)[:3] == (False, START_MS + HOUR + 10450, 1)


def test_expire_sees_no_jump_where_the_callers_own_time_passed_too(world: World) -> None:
    world.subscribe()
    world.leased("a")
    world.advance(5 * MINUTE)
    assert world.expire(expected_ms=START_MS + 4 * MINUTE)[:3] == (False, world.now, 1)


def test_expire_holds_again_at_a_second_jump(world: World) -> None:
    world.subscribe()
    world.leased("a")
    world.advance(5 * MINUTE)
    assert world.expire(expected_ms=START_MS).held
    world.advance(5 * MINUTE)
    assert world.expire(expected_ms=world.now - 5 * MINUTE).held


def test_expire_makes_the_late_settle_of_a_stopped_worker_stale(world: World) -> None:
    world.subscribe()
    (receipt,) = world.leased("a")
    world.set_time(DEADLINE)
    world.expire()
    assert world.succeed(receipt) == ["STALE"]
    assert world.release(receipt) == ["STALE"]
    assert world.lease().numbers == [(2, 2)]
    assert world.succeed(receipt) == ["STALE"]
    assert world.succeed(Receipt("a", 2)) == ["OK"]
