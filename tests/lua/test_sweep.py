"""sweep: forget the caller-given ids whose hour is over."""

from tests.support.builders import HOUR, prepared
from tests.support.world import START_MS, World


def committed(world: World, *ids: str) -> None:
    world.subscribe()
    world.publish(*(prepared(id_, digest="d") for id_ in ids))
    world.succeed(*world.leased(*ids, publish=False))


def test_sweep_forgets_an_id_when_its_hour_is_over_and_not_before(world: World) -> None:
    committed(world, "a")
    world.set_time(START_MS + HOUR - 1)
    with world.changes() as changed:
        assert world.sweep() == 0
    assert changed == {}
    world.advance(1)
    with world.changes() as changed:
        assert world.sweep() == 1
    assert changed == {"ids": {"a": None}, "id_expiry": {"a": None}}


def test_sweep_keeps_the_id_of_a_message_that_lives(world: World) -> None:
    world.subscribe()
    world.publish(prepared("a", digest="d"))
    world.advance(2 * HOUR)
    assert world.sweep() == 0
    assert world.publish(prepared("a", digest="d")).verdicts == "D"


def test_sweep_takes_a_bounded_batch(world: World) -> None:
    committed(world, "a", "b", "c")
    world.advance(HOUR)
    assert (world.sweep(2), world.sweep(2), world.sweep(2)) == (2, 1, 0)


def test_sweep_keeps_an_id_that_is_new_again_after_a_sweep_that_was_cut(world: World) -> None:
    committed(world, "a", "b")
    world.advance(HOUR)
    world.client.hdel(world.keys.ids, "a")  # as far as it came
    world.publish(prepared("a", digest="e"))
    with world.changes() as changed:
        assert world.sweep() == 1
    assert changed == {"ids": {"b": None}, "id_expiry": {"b": None}}
    assert world.publish(prepared("a", digest="d")).verdicts == "C"
