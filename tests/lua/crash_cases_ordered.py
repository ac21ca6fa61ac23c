"""Ordered groups at the crash-point test: start states, calls, and what others do behind a cut."""

from collections.abc import Callable
from typing import Any

from rqretry.protocol import operate
from rqretry.protocol.publish import Prepared
from tests.lua.crash_cases import TWO, Act, Case, subscribe
from tests.support.builders import SECOND, failure, first, prepared
from tests.support.world import VISIBILITY_MS, World


def ordered(world: World, *names: str, **settings: Any) -> None:
    """Message a, and b behind it, of one message group; c of another; and d of none."""
    for name in names or ("g",):
        world.subscribe(name, ordered=True, **settings)
    world.publish(*in_order("ab", "x"), *in_order("c", "y"), "d")


def in_order(ids: str, name: str) -> list[Prepared]:
    return [prepared(id_, group=name, keys=("k", id_)) for id_ in ids]


def ordered_leased(world: World, *names: str, **settings: Any) -> None:
    ordered(world, *names, **settings)
    assert world.lease().ids == ["a", "c", "d"]


def ordered_overdue(world: World, *names: str, **settings: Any) -> None:
    ordered_leased(world, *names, **settings)
    world.advance(VISIBILITY_MS)


def ordered_dead(world: World, *names: str) -> None:
    """Message a is dead, and b is out."""
    ordered_leased(world, *names)
    world.fail(failure("a", level=-1))


def ordered_failed(world: World, *names: str) -> None:
    ordered_leased(world, *names)
    world.fail(failure("a"))


def ordered_dead_alone(world: World) -> None:
    """Message a is dead, and nothing else is left of its message group."""
    ordered_dead(world)
    world.succeed(*world.leased("b", publish=False))


def ordered_waiting(world: World) -> None:
    """Message a was sent back with a delay that is over, and b is out."""
    ordered_dead(world)
    world.redrive("a", delays_ms=[SECOND])
    world.advance(SECOND)


def ordered_backlog(world: World) -> None:
    world.publish(*in_order("ab", "x"), *in_order("c", "y"), "d")
    world.subscribe(ordered=True, install=False)


def ordered_due(world: World) -> None:
    """Messages that a transaction committed: b stands behind a, which is out."""
    world.subscribe(ordered=True)
    world.publish(*in_order("a", "x"))
    for number, (id_, name) in enumerate((("b", "x"), ("c", "y")), start=2):
        world.client.hset(world.keys.bodies, id_, id_)
        world.client.hset(world.keys.message_groups, id_, f"{number:016}{name}")
        world.client.zadd(world.keys.scheduled, {id_: number})


def more_of_each(world: World) -> None:
    """Whoever is out of the message groups x and y holds these up."""
    world.publish(*in_order("u", "x"), *in_order("v", "y"))


def die(world: World) -> None:
    """Whatever can be leased is dead at once."""
    world.fail(*(failure(id_, level=-1) for id_ in world.lease().ids))


def clear(world: World) -> object:
    page = world.run(operate.scan_blocked(world.group()))
    members = page.members or ["x\x000000000000000002b"]
    return world.run(operate.purge_blocked(world.group(), members, actor="ops"))


DEATHS: dict[str, tuple[Callable[..., None], Act]] = {
    "fail": (ordered_leased, lambda w: w.fail(failure("a"), failure("c"))),
    "expire": (ordered_overdue, lambda w: w.expire()),
}
OTHERS: dict[str, Act] = {
    "a redrive": lambda w: w.redrive("a", "c"),
    "a later redrive": lambda w: w.redrive("a", "c", delays_ms=[SECOND, SECOND]),
    "a release": lambda w: w.release(*first("a", "c")),
}


def died_by(how: str, what: str) -> Case:
    """Messages that die in the call that is cut, and what somebody then does with them."""
    start, act = DEATHS[how]
    return Case(
        f"{how} to death in order, and {what}",
        lambda w: start(w, max_retries=0),
        act,
        meanwhile=OTHERS[what],
        after=more_of_each,
    )


ORDERED = [
    Case(
        "publish in order",
        ordered,
        lambda w: w.publish(*in_order("u", "x"), *in_order("vw", "z"), seq=77, checksum="s"),
        publishes="uvw",
    ),
    Case("lease in order", ordered, lambda w: w.lease()),
    Case(
        "succeed in order",
        ordered_leased,
        lambda w: w.succeed(*first("a", "c", "d")),
        ends="acd",
    ),
    Case(
        "succeed in order, two groups",
        lambda w: ordered_leased(w, *TWO),
        lambda w: w.succeed(*first("a", "c", "d")),
        ends="acd",
    ),
    Case("fail in order", ordered_leased, lambda w: w.fail(failure("a"))),
    Case(
        "fail to death in order",
        ordered_leased,
        lambda w: w.fail(failure("a", level=-1), failure("c", level=-1)),
    ),
    Case("expire in order", ordered_overdue, lambda w: w.expire()),
    Case(
        "expire to death in order",
        lambda w: ordered_overdue(w, max_retries=0),
        lambda w: w.expire(),
    ),
    Case("redrive in order", ordered_dead, lambda w: w.redrive("a")),
    Case(
        "redrive later in order",
        ordered_dead,
        lambda w: w.redrive("a", delays_ms=[SECOND]),
    ),
    Case("promote in order", ordered_waiting, lambda w: w.promote()),
    Case("purge in order", ordered_leased, lambda w: w.purge("a", place="inflight"), ends="a"),
    Case(
        "drop in order",
        ordered,
        lambda w: w.drop(*((id_, True) for id_ in "acd")),
        ends="acd",
        leaves="acd",
    ),
    Case(
        "drop in order, two groups",
        lambda w: ordered(w, *TWO),
        lambda w: w.drop(*((id_, True) for id_ in "acd")),
        ends="acd",
        leaves="acd",
    ),
    Case(
        "purge a level in order, two groups",
        lambda w: ordered_failed(w, *TWO),
        lambda w: w.purge("a", place="delay:1"),
        ends="a",
        leaves="a",
    ),
    Case("purge_blocked", ordered, clear, ends="b", leaves="b"),
    Case("dead_letter in order", ordered, lambda w: w.end_by_hand("a", "c", "d", staying="d")),
    Case(
        "dead_letter of what is blocked",
        ordered,
        lambda w: w.end_by_hand("x\x000000000000000002b", place="line"),
    ),
    Case(
        "dead_letter a level in order, two groups",
        lambda w: ordered_failed(w, *TWO),
        lambda w: w.end_by_hand("a", place="delay:1"),
    ),
    Case("subscribe in order", ordered_backlog, subscribe),
    Case("deliver in order", ordered_due, lambda w: w.deliver()),
    *(died_by(how, what) for how in DEATHS for what in OTHERS),
    Case(
        "redrive in order, and a lease",
        ordered_dead_alone,
        lambda w: w.redrive("a"),
        meanwhile=lambda w: w.lease(),
        after=more_of_each,
    ),
    Case(
        "deliver in order, and a death",
        ordered_due,
        lambda w: w.deliver(),
        meanwhile=die,
        after=more_of_each,
    ),
]
