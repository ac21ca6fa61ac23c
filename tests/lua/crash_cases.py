"""Start states and calls for the crash-point test: every writing script, many ways in."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from rqretry.core.receipt import Receipt
from rqretry.protocol import catalog
from rqretry.protocol.publish import Front
from tests.support.builders import HOUR, SECOND, failure, first, prepared
from tests.support.world import VISIBILITY_MS, World

TWO = ("g", "h")

Act = Callable[[World], object]


@dataclass(frozen=True)
class Case:
    """A start state, and the call to cut; `for_others`: what groups but g get of `publishes`.

    `ends` are the messages that the call itself ends, for group g (`ends_for_others`: for others),
    and `leaves` those whose numbers and failures stay when it is cut and never repeated: an
    operator repeats it. `meanwhile` is what somebody else does between the cut and what follows it.
    `after` is what happens in any case before the verbs run on, as the next start of the group.
    """

    name: str
    start: Act
    act: Act
    ends: str = ""
    publishes: str = ""
    leaves: str = ""
    ends_for_others: str = ""
    for_others: str | None = None
    meanwhile: Act = lambda world: None
    after: Act = lambda world: None


# Start states. Messages a and b are what the call is about; c is a bystander.


def published(world: World, *names: str, **settings: Any) -> None:
    for name in names or ("g",):
        world.subscribe(name, **settings)
    world.publish(prepared("a", "x" * 9000, digest="d", keys=("k", "l")), "b", "c")


def publish_large(world: World) -> None:
    """As a client does, which makes a call again where a cut one has left another body behind."""
    body = "x" * 70_000
    messages = prepared("x", body, digest="d"), prepared("y", body), prepared("z", digest="d")
    while world.publish(*messages, seq=77, checksum="s").status == "AGAIN":
        pass


def leased(world: World, *names: str, **settings: Any) -> None:
    published(world, *names, **settings)
    world.lease(2)


def leased_and_listed(world: World) -> None:
    leased(world)
    world.client.lpush(world.group().ready, "a", "a")


def leased_and_listed_small(world: World) -> None:
    world.subscribe()
    world.publish("a", "b", "c")
    world.lease(2)
    world.client.lpush(world.group().ready, "a", "a")
    world.advance(1)


def failed_before(world: World, *names: str) -> None:
    leased(world, *names)
    world.fail(*(failure(id_, delay_ms=1000 + n) for n, id_ in enumerate("ab")))


def failed_and_due(world: World, *names: str) -> None:
    failed_before(world, *names)
    world.advance(2 * SECOND)


def leased_again(world: World, *names: str) -> None:
    failed_and_due(world, *names)
    world.promote()
    assert world.lease(2, prefer="retry").numbers == [(2, 2), (2, 2)]


def overdue(world: World, *names: str, **settings: Any) -> None:
    leased(world, *names, **settings)
    world.advance(VISIBILITY_MS)


def expired(world: World, *names: str) -> None:
    overdue(world, *names)
    world.expire()


def overdue_again(world: World, *names: str) -> None:
    expired(world, *names)
    world.lease(2, prefer="retry")
    world.advance(VISIBILITY_MS)


def dead_lettered(world: World, *names: str) -> None:
    leased(world, *names)
    world.fail(failure("a", level=-1), failure("b", level=-1))


def scheduled(world: World, *names: str) -> None:
    for name in names:
        world.subscribe(name)
    world.publish(prepared("a", delay_ms=1), prepared("b", delay_ms=1), "c")
    world.advance(1)


def filtering(world: World) -> None:
    """Group g takes everything, h the tag of x."""
    published(world)
    world.subscribe("h", tags="x || other")


def scheduled_and_filtered(world: World) -> None:
    """Message a is for h alone, and nobody wants b."""
    world.subscribe("g", tags="c")
    world.subscribe("h", tags="a || other")
    messages = [
        prepared(id_, "x" * 9000, delay_ms=1, tag=id_, digest="d", keys=("k",)) for id_ in "ab"
    ]
    world.publish(*messages, prepared("c", tag="c"))
    world.advance(1)


def scheduled_later(world: World, *names: str) -> None:
    for name in names:
        world.subscribe(name)
    world.publish(prepared("a", "x" * 9000, digest="d", delay_ms=HOUR, keys=("k", "l")))


def left(world: World) -> None:
    """Group h has left the route, and holds nothing more."""
    published(world, *TWO)
    world.drop(group="h")
    groups = tuple(group for group in world.route.groups if group.name == "g")
    world.route = replace(world.route, version=world.route.version + 1, groups=groups)
    subscribe(world)


def behind(world: World, *, failed: bool = False) -> None:
    """Group h came later and gets what is stored; g has all of it, or what it failed is mixed."""
    (failed_before if failed else leased)(world)
    world.subscribe("h", paused=1, catching_up=1)


def finish_catching_up(world: World) -> None:
    for place in ("ready", "retry", "inflight", "delay:1"):
        world.catch_up(place)
    world.configure("h", 2, paused=0, catching_up=0)


def committed(world: World) -> None:
    leased(world)
    world.succeed(*first("a", "b"))
    world.advance(HOUR)


def with_backlog(world: World, *, and_ready: bool = False) -> None:
    world.publish("a", "b", "c")
    world.subscribe("g")  # takes the backlog; put back what it took
    keys = world.group()
    if and_ready:
        world.client.lmove(keys.ready, world.keys.backlog, "RIGHT", "LEFT")
        world.client.lmove(keys.ready, world.keys.backlog, "RIGHT", "LEFT")
    else:
        world.client.rename(keys.ready, world.keys.backlog)


def in_front(world: World) -> None:
    published(world)
    world.publish("d", producer="q", seq=7)


# Calls.


def do_publish(world: World, *messages: str, delay_ms: int | str = "", digest: str = "") -> None:
    world.publish(
        *(prepared(m, delay_ms=delay_ms, digest=digest) for m in messages), seq=77, checksum="s"
    )


def publish_one_of_them(world: World) -> None:
    world.publish(prepared("y", digest="d"), prepared("z", digest="d"), producer="q", seq=1)
    assert {"y", "z"} <= {*world.state()["g:ready"]} & {*world.state()["h:ready"]}
    assert world.client.hget(world.keys.ids, "y") == b"d"


def publish_again(world: World) -> None:
    world.publish(prepared("a", digest="other"), producer="q", seq=1)


def still_known(world: World) -> None:
    assert world.publish(prepared("a", digest="third"), producer="r", seq=1).verdicts == "C"


def settle(world: World, lease_no: int) -> list[str]:
    return world.succeed(Receipt("a", lease_no), Receipt("b", lease_no))


def fail(world: World, lease_no: int, level: int = 0) -> object:
    failures = (failure(id_, lease_no, level=level) for id_ in "ab")
    return world.fail(*failures, tracebacks={"f": "Traceback"})


def release(world: World, lease_no: int, *, postpone: bool = False) -> object:
    delays_ms: list[int | str] = [SECOND, SECOND] if postpone else ["", ""]
    receipts = (Receipt("a", lease_no), Receipt("b", lease_no))
    return world.release(*receipts, delays_ms=delays_ms, max_postpones=9)


def other_done(world: World, lease_no: int) -> None:
    leased(world, *TWO)
    world.lease(2, group="h")
    world.succeed(Receipt("a", lease_no), Receipt("b", lease_no), group="h")


def settled_in_part(world: World) -> None:
    overdue(world, *TWO)
    world.lease(1, group="h")
    world.succeed(*first("a"), group="h")
    world.damage().hdel(world.keys.bodies, "a")
    world.client.hdel(world.keys.big, "a")
    world.client.hdel(world.keys.keyed, "a")
    world.client.delete(world.keys.message_keys)
    world.client.hset(world.keys.pending, "b", "b")


def subscribe(world: World) -> None:
    world.run(catalog.subscribe(world.keys, world.route))


CASES = [
    Case("publish", published, lambda w: do_publish(w, "x", "y"), publishes="xy"),
    Case(
        "publish behind a call",
        in_front,
        lambda w: w.publish("x", "y", seq=77, checksum="s", front=Front("q", "7 sum")),
        publishes="xy",
    ),
    Case(
        "publish to two groups",
        lambda w: published(w, *TWO),
        lambda w: do_publish(w, "x", "y"),
        publishes="xy",
    ),
    Case(
        "publish chosen ids",
        lambda w: published(w, *TWO),
        lambda w: do_publish(w, "x", "y", digest="d"),
        publishes="xy",
    ),
    Case(
        "publish chosen ids of which another publishes one meanwhile",
        lambda w: published(w, *TWO),
        lambda w: do_publish(w, "x", "y", digest="d"),
        publishes="xy",
        meanwhile=publish_one_of_them,
    ),
    Case(
        "publish chosen ids of which one is known",
        lambda w: published(w, *TWO),
        lambda w: w.publish(
            *(prepared(id_, digest=digest) for id_, digest in ("xd", "ad", "yd")),
            seq=77,
            checksum="s",
        ),
        publishes="xy",
    ),
    Case(
        "publish chosen ids behind a call",
        in_front,
        lambda w: w.publish(
            prepared("x", "x" * 9000, digest="d"),
            prepared("y", digest="e"),
            seq=77,
            checksum="s",
            front=Front("q", "7 sum"),
        ),
        publishes="xy",
    ),
    Case(
        "publish with tags",
        filtering,
        lambda w: w.publish(
            prepared("x", tag="x"), prepared("y", tag="y", digest="d"), seq=77, checksum="s"
        ),
        publishes="xy",
        for_others="x",
    ),
    Case(
        "publish what nobody wants",
        lambda w: w.subscribe(tags="a"),
        lambda w: w.publish(prepared("x", tag="x", digest="d"), seq=77, checksum="s"),
    ),
    Case(
        "publish with keys",
        published,
        lambda w: w.publish(
            prepared("x", keys=("k", "l")), prepared("y", keys=("k",)), seq=77, checksum="s"
        ),
        publishes="xy",
    ),
    Case("publish large bodies", published, publish_large, publishes="xyz"),
    Case("publish delayed", published, lambda w: do_publish(w, "x", delay_ms=5), publishes="x"),
    Case("publish to the backlog", lambda w: None, lambda w: do_publish(w, "x"), publishes="x"),
    Case("lease", published, lambda w: w.lease(2)),
    Case("lease from both lanes", expired, lambda w: w.lease(3, prefer="retry")),
    Case("lease of leftovers", leased_and_listed, lambda w: w.lease(2)),
    Case("lease of small leftovers later", leased_and_listed_small, lambda w: w.lease(3)),
    Case("renew", leased, lambda w: w.renew(*first("a", "b"), visibility_ms=HOUR)),
    Case("succeed", leased, lambda w: settle(w, 1), ends="ab"),
    Case("succeed again", leased_again, lambda w: settle(w, 2), ends="ab"),
    Case("succeed, two groups", lambda w: leased(w, *TWO), lambda w: settle(w, 1), ends="ab"),
    Case(
        "succeed again, two groups",
        lambda w: leased_again(w, *TWO),
        lambda w: settle(w, 2),
        ends="ab",
    ),
    Case("succeed as the last", lambda w: other_done(w, 1), lambda w: settle(w, 1), ends="ab"),
    Case("fail", leased, lambda w: fail(w, 1)),
    Case("fail again", leased_again, lambda w: fail(w, 2)),
    Case("fail to death", leased, lambda w: fail(w, 1, level=-1)),
    Case("fail, two groups", lambda w: leased(w, *TWO), lambda w: fail(w, 1)),
    Case("fail with none left", lambda w: leased(w, max_retries=0), lambda w: fail(w, 1, level=0)),
    Case("release", leased, lambda w: release(w, 1)),
    Case("release again", leased_again, lambda w: release(w, 2)),
    Case("postpone", leased, lambda w: release(w, 1, postpone=True)),
    Case("change_visibility", leased, lambda w: w.change(Receipt("a", 1), SECOND)),
    Case("change to nothing", leased, lambda w: w.change(Receipt("a", 1), 0)),
    Case(
        "change to nothing with none left",
        lambda w: leased(w, max_retries=0),
        lambda w: w.change(Receipt("a", 1), 0),
    ),
    Case("change to nothing again", leased_again, lambda w: w.change(Receipt("a", 2), 0)),
    Case("expire", overdue, lambda w: w.expire()),
    Case("expire, two groups", lambda w: overdue(w, *TWO), lambda w: w.expire()),
    Case("expire again", overdue_again, lambda w: w.expire()),
    Case("expire with none left", lambda w: overdue(w, max_retries=0), lambda w: w.expire()),
    Case("expire leftovers", settled_in_part, lambda w: w.expire(), ends="ab"),
    Case("promote", failed_and_due, lambda w: w.promote()),
    Case("deliver", lambda w: scheduled(w, "g"), lambda w: w.deliver()),
    Case("deliver to two groups", lambda w: scheduled(w, *TWO), lambda w: w.deliver()),
    Case("deliver to nobody", scheduled, lambda w: w.deliver()),
    Case(
        "deliver with tags",
        scheduled_and_filtered,
        lambda w: w.deliver(),
        ends="ab",
        ends_for_others="b",
    ),
    Case("redrive", dead_lettered, lambda w: w.redrive("a", "b")),
    Case("redrive, two groups", lambda w: dead_lettered(w, *TWO), lambda w: w.redrive("a", "b")),
    Case("purge", dead_lettered, lambda w: w.purge("a", "b"), ends="ab"),
    Case(
        "purge, two groups",
        lambda w: dead_lettered(w, *TWO),
        lambda w: w.purge("a", "b"),
        ends="ab",
    ),
    Case(
        "purge a level",
        failed_before,
        lambda w: w.purge("a", "b", place="delay:1"),
        ends="ab",
        leaves="ab",
    ),
    Case("purge in flight", leased, lambda w: w.purge("a", "b", place="inflight"), ends="ab"),
    Case("purge_list", published, lambda w: w.drop(), ends="abc"),
    Case("purge_list, two groups", lambda w: published(w, *TWO), lambda w: w.drop(), ends="abc"),
    Case("purge_list some", published, lambda w: w.drop(("a", False), ("b", True)), ends="b"),
    Case("purge_list retries", expired, lambda w: w.drop(lane="retry"), ends="ab", leaves="ab"),
    Case("purge_list leftovers", leased_and_listed, lambda w: w.drop(limit=2)),
    Case("dead_letter", published, lambda w: w.end_by_hand("a", "b", staying="b")),
    Case(
        "dead_letter, two groups", lambda w: published(w, *TWO), lambda w: w.end_by_hand("a", "b")
    ),
    Case("dead_letter a level", failed_before, lambda w: w.end_by_hand("a", "b", place="delay:1")),
    Case("dead_letter retries", expired, lambda w: w.end_by_hand("a", "b", place="retry")),
    Case("dead_letter leftovers", leased_and_listed, lambda w: w.end_by_hand("a", "a", "c")),
    Case("promote early", failed_before, lambda w: w.promote(early=True)),
    Case("redrive later", dead_lettered, lambda w: w.redrive("a", "b", delays_ms=["", SECOND])),
    Case("recall", lambda w: scheduled_later(w, "g"), lambda w: w.recall("a"), ends="a"),
    Case("leave", left, lambda w: w.leave("h")),
    Case(
        "catch up",
        behind,
        lambda w: w.catch_up("inflight"),
        publishes="abc",
        after=finish_catching_up,
    ),
    Case(
        "catch up with retries",
        lambda w: behind(w, failed=True),
        lambda w: w.catch_up("delay:1"),
        publishes="abc",
        after=finish_catching_up,
    ),
    Case("subscribe", with_backlog, subscribe),
    Case(
        "subscribe with ready messages",
        lambda w: with_backlog(w, and_ready=True),
        subscribe,
    ),
    Case("configure", leased, lambda w: w.configure("g", 2, max_retries=1)),
    Case("sweep", committed, lambda w: w.sweep()),
    Case(
        "sweep of an id that is new again meanwhile",
        committed,
        lambda w: w.sweep(),
        meanwhile=publish_again,
        after=still_known,
    ),
]
