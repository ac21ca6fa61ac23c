"""deliver: scheduled and due -> ready of every group of the topic."""

from rqretry.core.route import Route
from tests.support.builders import SECOND, prepared
from tests.support.world import World


def scheduled(world: World, **delays_ms: int) -> None:
    world.publish(*(prepared(id_, delay_ms=ms) for id_, ms in delays_ms.items()))


def test_deliver_moves_what_is_due_to_every_group(world: World) -> None:
    world.subscribe("g")
    world.subscribe("h")
    scheduled(world, a=SECOND, b=3 * SECOND)
    world.advance(SECOND)
    with world.changes() as changed:
        assert world.deliver() == ("OK", 1, 2 * SECOND, None)
    assert changed == {
        "pending": {"a": "ab"},
        "scheduled": {"a": None},
        "g:ready": ["a"],
        "g:wake": {"1": 0},
        "h:ready": ["a"],
        "h:wake": {"1": 0},
        "counters": {"publish:g": 1, "publish:h": 1},
        "events": ["deliver  w1 a"],
    }


def test_deliver_goes_to_the_groups_of_today(world: World) -> None:
    scheduled(world, a=SECOND)
    world.subscribe("g")
    world.advance(SECOND)
    world.deliver()
    assert world.lease().ids == ["a"]


def test_deliver_to_a_topic_without_groups_goes_to_the_backlog(world: World) -> None:
    scheduled(world, a=SECOND)
    world.advance(SECOND)
    with world.changes() as changed:
        assert world.deliver() == ("OK", 1, None, None)
    assert changed == {
        "scheduled": {"a": None},
        "backlog": ["a"],
        "events": ["deliver  w1 a"],
    }


def test_deliver_before_anything_is_due_changes_nothing(world: World) -> None:
    world.subscribe()
    scheduled(world, a=SECOND)
    with world.changes() as changed:
        assert world.deliver() == ("OK", 0, SECOND, None)
    assert changed == {}


def test_deliver_by_a_stale_route_writes_nothing_and_reports_the_new_one(world: World) -> None:
    world.subscribe()
    scheduled(world, a=SECOND)
    world.advance(SECOND)
    with world.changes() as changed:
        answer = world.deliver(route=Route())
    assert answer == ("STALE_ROUTE", 0, None, world.route)
    assert changed == {}


def test_deliver_takes_a_bounded_batch(world: World) -> None:
    world.subscribe()
    scheduled(world, a=1, b=2, c=3)
    world.advance(SECOND)
    assert world.deliver(limit=2) == ("OK", 2, 0, None)
    assert world.deliver(limit=2) == ("OK", 1, None, None)
    assert world.lease().ids == ["a", "b", "c"]


def test_deliver_drops_what_has_no_body(world: World) -> None:
    world.subscribe()
    scheduled(world, a=1, b=1)
    world.damage().hdel(world.keys.bodies, "a")
    world.advance(1)
    assert world.deliver() == ("OK", 2, None, None)
    state = world.state()
    assert (state["g:ready"], "scheduled" in state) == (["b"], False)


def test_deliver_of_nothing_but_messages_without_a_body_writes_no_history(world: World) -> None:
    world.subscribe()
    scheduled(world, a=1)
    world.damage().hdel(world.keys.bodies, "a")
    world.advance(1)
    with world.changes() as changed:
        world.deliver()
    assert changed == {"scheduled": {"a": None}}


def test_deliver_keeps_what_groups_have_finished_since_a_delivery_was_cut(world: World) -> None:
    world.subscribe("g")
    world.subscribe("h")
    scheduled(world, a=SECOND)
    world.advance(SECOND)
    world.client.hset(world.keys.pending, "a", "b")  # g had it, and committed it
    world.deliver()
    assert world.state()["pending"] == {"a": "b"}
    assert (world.lease(group="g").ids, world.lease(group="h").ids) == ([], ["a"])


def test_the_more_ordered_groups_there_are_the_fewer_messages_one_call_delivers(
    world: World,
) -> None:
    for number in range(10):
        world.subscribe(f"g{number}", ordered=True)
    world.publish(*(prepared(f"m{number:03}", delay_ms=SECOND) for number in range(300)))
    world.advance(SECOND)
    assert world.deliver() == ("OK", 240, 0, None)
    assert world.deliver() == ("OK", 60, None, None)
