"""recall: scheduled and not due -> gone."""

from tests.support.builders import HOUR, SECOND, prepared
from tests.support.world import World


def test_recall_takes_back_what_is_not_due_and_leaves_nothing_behind(world: World) -> None:
    world.subscribe()
    world.publish(prepared("a", "x" * 9000, digest="d", delay_ms=SECOND))
    world.publish(prepared("b", delay_ms=SECOND))
    world.advance(SECOND - 1)
    with world.changes() as changed:
        assert world.recall("a") == "OK"
    assert changed == {
        "scheduled": {"a": None},
        "bodies": {"a": None},
        "big": {"a": None},
        "ids": {"a": None},
        "counters": {"recall": 1},
        "events": ["recall  w1 a"],
    }
    world.advance(SECOND)
    world.deliver()
    assert world.lease().ids == ["b"]


def test_recall_of_what_is_due_is_too_late_whether_or_not_it_was_delivered(world: World) -> None:
    world.subscribe()
    world.publish(prepared("a", delay_ms=SECOND))
    world.advance(SECOND)
    with world.changes() as changed:
        assert world.recall("a") == "LATE"
    assert changed == {}
    world.deliver()
    assert world.recall("a") == "LATE"


def test_recall_of_what_never_had_a_delay_is_too_late(world: World) -> None:
    world.subscribe()
    world.publish("a")
    with world.changes() as changed:
        assert world.recall("a") == "LATE"
    assert changed == {}


def test_recall_of_an_unknown_message_and_recalling_twice_is_gone(world: World) -> None:
    world.publish(prepared("a", delay_ms=SECOND))
    assert world.recall("a") == "OK"
    with world.changes() as changed:
        assert (world.recall("a"), world.recall("unknown")) == ("GONE", "GONE")
    assert changed == {}


def test_recall_of_a_callers_id_that_every_group_has_finished_is_too_late(world: World) -> None:
    world.subscribe()
    world.publish(prepared("a", digest="d"))
    world.succeed(*world.leased("a", publish=False))
    with world.changes() as changed:
        assert world.recall("a") == "LATE"
    assert changed == {}


def test_recall_frees_the_id_and_a_late_repeat_of_the_call_does_not_bring_it_back(
    world: World,
) -> None:
    world.publish(prepared("a", "at nine", digest="d", delay_ms=SECOND), seq=1)
    world.recall("a")
    assert world.publish(prepared("a", digest="d", delay_ms=SECOND), seq=1).status == "DUPLICATE"
    assert "scheduled" not in world.state()
    rescheduled = prepared("a", "at ten", digest="e", delay_ms=2 * SECOND)
    assert world.publish(rescheduled, seq=2).verdicts == ""
    world.subscribe()
    world.advance(2 * SECOND)
    world.deliver()
    assert world.lease().ids == ["a"]


def test_recall_frees_an_id_for_good_after_a_call_that_was_cut_had_begun_its_hour(
    world: World,
) -> None:
    world.subscribe()
    world.publish(prepared("a", digest="d", delay_ms=SECOND), seq=1)
    world.damage().zadd(world.keys.id_expiry, {"a": world.now + HOUR})
    assert world.recall("a") == "OK"
    world.publish(prepared("a", digest="d"), seq=2)
    world.advance(HOUR)
    world.sweep()
    assert world.publish(prepared("a", digest="e"), seq=3).verdicts == "C"
