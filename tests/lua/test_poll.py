"""poll: is there anything to lease in some places; reads only."""

from rqretry.protocol.lease import Polled, poll
from tests.support.builders import SECOND, failure, prepared
from tests.support.world import START_MS, VISIBILITY_MS, World

IDLE = Polled(START_MS, None, None, None)


def seen(world: World, *groups: str) -> list[Polled | None]:
    with world.changes() as changed:
        answer = world.run(poll([world.group(name) for name in groups]))
    assert changed == {}
    return answer


def test_a_place_without_messages_has_nothing_to_lease_and_nothing_due(world: World) -> None:
    world.subscribe()
    assert seen(world, "g") == [IDLE]


def test_it_counts_the_ready_messages_of_a_place(world: World) -> None:
    world.subscribe("g")
    world.publish("a")
    world.subscribe("h")
    some = IDLE._replace(ready=1)
    assert seen(world, "g", "h", "g") == [some, IDLE, some]


def test_it_counts_the_retries_of_a_place(world: World) -> None:
    world.subscribe()
    world.leased("a")
    world.fail(failure("a", delay_ms=SECOND))
    world.advance(SECOND)
    world.promote()
    assert seen(world, "g") == [Polled(START_MS + SECOND, None, None, None, retry=1)]


def test_a_group_that_the_partition_does_not_know_is_for_a_lease(world: World) -> None:
    world.subscribe("g")
    assert seen(world, "other", "g") == [None, IDLE]


def test_it_reports_the_next_due_time_the_next_deadline_and_what_is_scheduled(world: World) -> None:
    world.subscribe()
    world.leased("a", "b")
    world.fail(failure("a", delay_ms=SECOND))
    world.publish(prepared("c", delay_ms=3 * SECOND))
    world.advance(100)
    assert seen(world, "g") == [
        Polled(START_MS + 100, SECOND - 100, VISIBILITY_MS - 100, 3 * SECOND - 100)
    ]


def test_what_is_over_is_due_now(world: World) -> None:
    world.subscribe()
    world.leased("a")
    world.advance(VISIBILITY_MS + SECOND)
    assert seen(world, "g") == [Polled(START_MS + VISIBILITY_MS + SECOND, None, 0, None)]
