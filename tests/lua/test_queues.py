"""Messages without a message group in an ordered group: in the order of their partition, as in a
queue, unless the topic says that they are unordered; and who blocks a message group for how long.
"""

from dataclasses import replace

from rqretry.checks.snapshot import ORDER_DIGITS
from rqretry.core.receipt import Receipt
from rqretry.core.route import PARALLEL
from rqretry.protocol import catalog, inspect
from rqretry.protocol.inspect import Blocking
from tests.support.builders import SECOND, failure, prepared
from tests.support.ordering import leased, sent
from tests.support.world import World


def out(world: World, *ids: str, prefer: str = "ready") -> dict[str, Receipt]:
    """Lease what can be leased, which is these; their receipts."""
    answer = world.lease(prefer=prefer)
    assert answer.ids == list(ids)
    pairs = zip(answer.ids, answer.numbers, strict=True)
    return {id_: Receipt(id_, lease_no) for id_, (lease_no, _) in pairs}


def in_line(world: World) -> list[str]:
    """The ids of the line, by message group."""
    return [member.rpartition("\0")[2][ORDER_DIGITS:] for member in world.state().get("g:line", ())]


def parallel(world: World) -> None:
    """The topic says that messages without a message group are unordered."""
    version = world.route.version + 1
    world.route = replace(world.route, version=version, unordered=PARALLEL)
    world.install()


def test_messages_without_a_message_group_go_one_after_another(world: World) -> None:
    world.subscribe(ordered=True)
    world.publish("a", "b", *sent("x", "x"))
    world.publish("c", prepared("given", digest="d"))
    for ids in (["a", "x"], ["b"], ["c"], ["given"]):
        receipts = out(world, *ids)
        assert leased(world) == []
        world.succeed(*receipts.values())
    assert not {"g:line", "g:heads", "message_groups"} & world.state().keys()


def test_a_failure_blocks_those_without_a_message_group_and_no_other(world: World) -> None:
    world.subscribe(ordered=True)
    world.publish("a", "b", *sent("xy", "x"))
    receipts = out(world, "a", "x")
    world.fail(failure("a"))
    world.succeed(receipts["x"])
    assert leased(world) == ["y"]
    world.advance(SECOND)
    world.promote()
    world.succeed(*out(world, "a").values())
    assert leased(world) == ["b"]


def test_where_the_topic_says_so_they_go_all_at_once(world: World) -> None:
    world.subscribe(ordered=True)
    parallel(world)
    world.publish("a", "b", *sent("xy", "x"))
    assert leased(world) == ["a", "b", "x"]
    assert in_line(world) == ["x", "y"]


def test_what_was_published_before_a_change_keeps_its_place(world: World) -> None:
    world.subscribe(ordered=True)
    world.publish("a", "b")
    parallel(world)
    world.publish("c", "d")
    assert leased(world) == ["a", "c", "d"]
    assert in_line(world) == ["a", "b"]


def test_a_group_beside_it_that_is_not_ordered_gets_all_at_once(world: World) -> None:
    world.subscribe("g", ordered=True)
    world.subscribe("h")
    world.publish("a", "b", "c")
    assert leased(world) == ["a"]
    assert world.state()["h:ready"] == ["a", "b", "c"]


def test_what_was_delayed_enters_when_it_is_due(world: World) -> None:
    world.subscribe("g", ordered=True)
    world.subscribe("f", tags="red", ordered=True)
    world.publish(prepared("late", delay_ms=SECOND, tag="red"), "a")
    world.advance(SECOND)
    world.publish("b")
    world.deliver()
    assert leased(world) == ["a"]
    assert in_line(world) == ["a", "b", "late"]
    assert world.state()["f:ready"] == ["late"]


def test_the_first_group_takes_what_has_no_message_group_in_order(world: World) -> None:
    ids = [f"m{n:03}" for n in range(600)]
    world.publish(*ids[:500])
    world.publish(*ids[500:])
    world.subscribe(ordered=True, install=False)
    install = catalog.subscribe(world.keys, world.route)
    assert world.run(install) == 100
    assert world.run(install) == 0
    assert leased(world) == ["m000"]
    assert in_line(world) == ids


def test_a_dead_letter_lets_the_next_go_and_comes_back_to_the_end(world: World) -> None:
    world.subscribe(ordered=True, max_retries=0)
    world.publish("a", "b", "c")
    out(world, "a")
    world.fail(failure("a"))
    assert world.redrive("a") == ["OK"]
    for id_ in "bca":
        world.succeed(*out(world, id_).values())
    assert leased(world) == []


def test_who_blocks_a_message_group_for_how_long(world: World) -> None:
    keys = world.subscribe(ordered=True, max_retries=-1)
    world.publish(*sent("abc", "x"), *sent("d", "y"), "e", "f", *sent("g", "z"))
    assert world.run(inspect.blockers(keys, 10)) == (0, [])
    receipts = out(world, "a", "d", "e", "g")
    world.fail(failure("a"))
    world.advance(SECOND)
    world.promote()
    again = out(world, "a")["a"]
    world.fail(failure("a", again.lease_no), failure("e"))
    world.succeed(receipts["d"])
    world.advance(500)

    blocked = [Blocking("a", "x", 3, 1500, 2), Blocking("e", " ", 2, 500, 1)]
    assert world.run(inspect.blockers(keys, 10)) == (2, blocked)
    assert world.run(inspect.blockers(keys, 1)) == (2, blocked[:1])
    world.advance(SECOND)
    world.promote()
    assert world.run(inspect.blockers(keys, 10))[0] == 2  # ready again
    out(world, "a", "e", prefer="retry")
    assert world.run(inspect.blockers(keys, 10))[0] == 2  # and in flight


def test_of_those_that_have_failed_as_often_the_one_published_first_is_named_first(
    world: World,
) -> None:
    keys = world.subscribe(ordered=True, max_retries=-1)
    world.publish(*sent("a", "x"), *sent("b", "y"))
    out(world, "a", "b")
    world.fail(failure("b"))
    world.advance(SECOND)
    world.fail(failure("a"))
    _, blocked = world.run(inspect.blockers(keys, 10))
    assert [each.id for each in blocked] == ["a", "b"]
