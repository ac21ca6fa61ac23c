"""sweep: forget what was kept for a time that is over, and say when the next is."""

from dataclasses import replace

from rqretry.protocol import inspect, transaction
from tests.support.builders import HOUR, MINUTE, SECOND, failure, prepared
from tests.support.world import START_MS, WORKER, World


def committed(world: World, *ids: str) -> None:
    world.subscribe()
    world.publish(*(prepared(id_, digest="d") for id_ in ids))
    world.succeed(*world.leased(*ids, publish=False))


def test_sweep_forgets_an_id_when_its_hour_is_over_and_not_before(world: World) -> None:
    committed(world, "a")
    world.set_time(START_MS + HOUR - 1)
    with world.changes() as changed:
        assert world.sweep().forgotten == 0
    assert changed == {}
    world.advance(1)
    with world.changes() as changed:
        assert world.sweep().forgotten == 1
    assert changed == {"ids": {"a": None}, "id_expiry": {"a": None}}


def test_sweep_keeps_the_id_of_a_message_that_lives(world: World) -> None:
    world.subscribe()
    world.publish(prepared("a", digest="d"))
    world.advance(2 * HOUR)
    assert world.sweep().forgotten == 0
    assert world.publish(prepared("a", digest="d")).verdicts == "D"


def test_sweep_takes_a_bounded_batch(world: World) -> None:
    committed(world, "a", "b", "c")
    world.advance(HOUR)
    assert world.sweep(2) == (2, 0, ())
    assert world.sweep(2) == (1, None, ())
    assert world.sweep(2) == (0, None, ())


def test_sweep_keeps_an_id_that_is_new_again_after_a_sweep_that_was_cut(world: World) -> None:
    committed(world, "a", "b")
    world.advance(HOUR)
    world.client.hdel(world.keys.ids, "a")  # as far as it came
    world.publish(prepared("a", digest="e"))
    with world.changes() as changed:
        assert world.sweep().forgotten == 1
    assert changed == {"ids": {"b": None}, "id_expiry": {"b": None}}
    assert world.publish(prepared("a", digest="d")).verdicts == "C"


def test_sweep_says_when_the_next_id_is_to_be_forgotten(world: World) -> None:
    committed(world, "a")
    world.advance(HOUR - 5 * SECOND)
    assert world.sweep() == (0, 5 * SECOND, ())


def test_sweep_forgets_a_transaction_ten_minutes_after_its_end(world: World) -> None:
    world.run(transaction.rollback(world.keys, "tx", worker=WORKER))
    assert world.sweep() == (0, 10 * MINUTE, ())
    world.advance(10 * MINUTE)
    with world.changes() as changed:
        assert world.sweep() == (1, None, ())
    assert changed == {"closed": {"tx": None}}


def test_sweep_names_the_dead_letters_past_the_retention_of_their_group(world: World) -> None:
    world.subscribe("g", dlq_retention_ms=HOUR)
    world.subscribe("h")
    world.dead_letter("a", "b")
    world.leased("a", "b", group="h", publish=False)
    world.fail(*(failure(id_, level=-1) for id_ in ("a", "b")), group="h")
    world.advance(MINUTE)
    world.dead_letter("c")
    assert world.sweep(groups=["g", "h"]) == (0, 59 * MINUTE, ((), ()))
    world.advance(59 * MINUTE)
    assert world.sweep(1, groups=["g", "h"]) == (0, 0, (("a",), ()))
    with world.changes() as changed:
        assert world.sweep(groups=["g", "h"]) == (0, 0, (("a", "b"), ()))
    assert changed == {}
    world.purge("a", "b")
    assert world.sweep(groups=["g", "h"]) == (0, MINUTE, ((), ()))


def entries(world: World) -> int:
    return len(world.run(inspect.history(world.keys, start="-", count=1000)))


def test_sweep_forgets_history_that_is_too_old_and_says_when_the_next_is(world: World) -> None:
    world.route = replace(world.route, version=1, history_bytes=10**6, history_ms=HOUR)
    world.install()
    for number in range(20):
        world.publish(f"m{number:02}")
        world.advance(MINUTE)
    world.set_time(START_MS + HOUR + 9 * MINUTE)
    assert world.sweep() == (10, MINUTE, ())
    assert entries(world) == 10
    kept = world.client.hmget(world.keys.meta, "bytes", "dropped")
    assert int(kept[1]) == 10
    world.set_time(START_MS + 2 * HOUR)
    assert world.sweep() == (10, None, ())
    assert world.client.hget(world.keys.meta, "bytes") == b"0"


def test_sweep_forgets_history_past_a_limit_that_was_lowered_in_bounded_calls(
    world: World,
) -> None:
    for number in range(300):
        world.publish(f"m{number:03}")
    world.route = replace(world.route, version=1, history_bytes=1000)
    world.install()
    assert world.sweep() == (16 * 8, 0, ())
    while world.sweep().next_ms == 0:
        pass
    assert entries(world) < 1000 / 64
    assert 0 < int(world.client.hget(world.keys.meta, "bytes")) <= 1000
