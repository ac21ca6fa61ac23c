"""stats, peek, dead_letters and the plain reads: they see everything and change nothing."""

from typing import Any

from rqretry.core.envelope import encode
from rqretry.core.message_id import make_id
from rqretry.protocol import inspect
from rqretry.protocol.command import MAX_BATCH_BYTES
from rqretry.protocol.inspect import DeadPage, LevelStats, Peeked, Stats
from tests.support.builders import SECOND, failure, first, prepared
from tests.support.world import START_MS, VISIBILITY_MS, World

DUE = START_MS + 10 * SECOND


def busy(world: World) -> World:
    world.subscribe()
    world.leased("waiting", "dead", "expired", "inflight")
    world.fail(failure("waiting"), failure("dead", level=-1))
    world.client.zadd(world.group().inflight, {"expired": START_MS})
    world.expire()
    world.publish("ready", prepared("scheduled", delay_ms=SECOND))
    return world


def stats(world: World) -> Stats:
    with world.changes() as changed:
        answer = world.run(inspect.stats(world.group()))
    assert changed == {}
    return answer


def peek(world: World, id_: str) -> Peeked:
    with world.changes() as changed:
        answer = world.run(inspect.peek(world.group(), id_))
    assert changed == {}
    return answer


def dead_letters(world: World, **options: Any) -> DeadPage:
    with world.changes() as changed:
        page = world.run(inspect.dead_letters(world.group(), **options))
    assert changed == {}
    return page


def test_stats_counts_every_place(world: World) -> None:
    found = stats(busy(world))
    assert found._replace(levels=[], counters={}, history_bytes=0) == Stats(
        START_MS, 1, 1, 1, 0, 1, 1, 0, 6, "ready", False, [], {}
    )
    assert found.levels[2] == LevelStats(1, 0, DUE)
    assert found.levels[3] == LevelStats(0, 0, None)
    assert len(found.levels) == 18
    assert found.counters["publish:g"] == "5"


def test_stats_knows_how_old_the_first_of_each_state_is(world: World) -> None:
    """Of what has a chosen id, too: the end of the message says it."""
    world.subscribe(ordered=True)
    made = [prepared(make_id(START_MS + n), group="m" if n < 3 else f"n{n}") for n in range(6)]
    own = prepared("own", encode(1, born_ms=2**41), digest="d", group="own")
    world.publish(*made, own, prepared("old", b"damaged", digest="d", group="old"))
    names = world.lease(2).ids
    world.fail(failure(names[0]))
    assert dict(stats(world).born_ms) == {
        "ready": START_MS + 4, "inflight": START_MS + 3, "waiting_retry": START_MS,
        "blocked": START_MS + 1,
    }  # fmt: skip
    world.lease(2)
    assert dict(stats(world).born_ms)["ready"] == 2**41
    world.advance(VISIBILITY_MS)
    assert dict(stats(world).born_ms).keys() == {"ready", "retry", "blocked"}
    world.lease(1)
    assert "ready" not in dict(stats(world).born_ms)


def test_stats_knows_how_old_a_retry_is_and_how_late_a_scheduled_message(world: World) -> None:
    world.subscribe()
    world.publish(prepared(make_id(START_MS)))
    world.lease()
    world.advance(VISIBILITY_MS)
    world.expire()
    assert dict(stats(world).born_ms) == {"retry": START_MS}
    world.publish(prepared("a", delay_ms=SECOND))
    world.advance(3 * SECOND)
    assert stats(world).late_ms == 2 * SECOND


def test_stats_reports_what_is_due_but_not_moved_yet(world: World) -> None:
    busy(world).advance(VISIBILITY_MS)
    found = stats(world)
    assert (found.inflight, found.overdue) == (1, 1)
    assert found.levels[2] == LevelStats(1, 1, DUE)


def test_stats_of_a_paused_group_and_of_nothing(world: World) -> None:
    empty = stats(world)
    assert (empty.ready, empty.oldest_id, empty.counters) == (0, "", {})
    world.publish("a")
    assert stats(world).backlog == 1
    world.subscribe()
    world.configure("g", 2, paused=1)
    assert stats(world).paused is True


def test_peek_finds_a_message_wherever_it_is(world: World) -> None:
    busy(world)
    ready = peek(world, "ready")
    assert (ready.in_ready, ready.stored, ready.body) == (0, True, b"body of ready")
    assert peek(world, "expired").in_retry == 0
    inflight = peek(world, "inflight")
    assert inflight.inflight == 1
    assert (inflight.deadline_ms, inflight.in_ready) == (START_MS + VISIBILITY_MS, None)
    waiting = peek(world, "waiting")
    assert (waiting.waiting, waiting.delivery_state) == ([(3, DUE)], "2:2:0:0")
    dead = peek(world, "dead")
    assert (dead.dead_since_ms, dead.death) == (START_MS, "1 failure")
    assert dead.failures == '1 1000000 {"c":"failure"}\n'
    assert peek(world, "scheduled").scheduled_ms == START_MS + SECOND


def test_peek_at_an_unknown_message_finds_nothing(world: World) -> None:
    busy(world)
    found = peek(world, "unknown")
    assert (found.stored, found.body, found.delivery_state, found.waiting) == (False, b"", "", [])


def test_peek_finds_a_message_in_the_backlog_and_who_owes_it(world: World) -> None:
    world.publish("a")
    assert peek(world, "a").in_backlog == 0
    world.subscribe("g")
    world.subscribe("h")
    world.publish("b")
    assert (peek(world, "b").owed, peek(world, "b").byte) == (b"ab", b"a")


def test_dead_letters_come_in_pages_oldest_first(world: World) -> None:
    world.subscribe()
    for id_ in ("c", "a", "b"):
        world.dead_letter(id_)
        world.advance(SECOND)
    page = dead_letters(world, count=2, with_bodies=True)
    assert (page.looked, page.ids) == (2, ["c", "a"])
    assert page.since_ms == [START_MS, START_MS + SECOND]
    assert page.deaths == ["1 failure", "1 failure"]
    assert page.failures[1] == '1 1001000 {"c":"failure"}\n'
    assert page.data == [b"body of c", b"body of a"]
    last = dead_letters(world, after=(page.since_ms[-1], "a"), count=2)
    assert (last.looked, last.ids, last.data) == (1, ["b"], [])
    assert dead_letters(world, after=(last.since_ms[-1], "b")).looked == 0


def test_dead_letters_of_big_bodies_come_in_smaller_pages(world: World) -> None:
    world.subscribe()
    half = "x" * (MAX_BATCH_BYTES // 2 + 1)
    world.publish(prepared("a", half), prepared("b", half))
    world.leased("a", publish=False)
    world.leased("b", publish=False)
    world.fail(failure("a", level=-1), failure("b", level=-1))
    assert dead_letters(world, with_bodies=True).ids == ["a"]
    assert dead_letters(world, with_bodies=False).ids == ["a", "b"]


def test_tracebacks_are_read_by_fingerprint(world: World) -> None:
    world.subscribe()
    world.leased("a")
    world.fail(failure("a"), tracebacks={"f1": "Traceback"})
    found = world.run(inspect.tracebacks(world.group(), ["f1", "f2"]))
    assert found == ["Traceback", ""]


def test_history_is_read_in_order_with_its_times(world: World) -> None:
    world.subscribe()
    world.leased("a")
    world.advance(SECOND)
    world.succeed(*first("a"))
    entries = world.run(inspect.history(world.keys, start="-"))
    assert [(id_, fields["e"]) for id_, fields in entries] == [
        (f"{START_MS}-1", b"publish"),
        (f"{START_MS}-2", b"lease"),
        (f"{START_MS + SECOND}-3", b"succeed"),
    ]
