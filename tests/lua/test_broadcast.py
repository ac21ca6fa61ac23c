"""What publish and deliver show to broadcast groups, and what their workers count."""

from collections.abc import Sequence
from dataclasses import replace

from rqretry.protocol import broadcast as broadcasting
from rqretry.protocol import catalog
from rqretry.protocol.broadcast import Entry, Mark
from tests.lua.crash_cases_kept import keep
from tests.lua.test_halves import commit, halves, prepare
from tests.support.builders import MINUTE, SECOND, prepared
from tests.support.world import START_MS, World


def broadcast(world: World, *others: str) -> None:
    """A topic with a broadcast group, and others."""
    for name in others:
        world.subscribe(name)
    world.route = replace(world.route, version=world.route.version + 1, broadcast=True)
    world.run(catalog.subscribe(world.keys, world.route))


def entries(world: World, after: Mark | None = None) -> list[Entry]:
    mark = after or Mark(broadcasting.START, 0)
    return world.run(broadcasting.read_after(world.keys, mark, count=100))


def shown(world: World) -> list[Sequence[str]]:
    return [[id_ for id_, _ in entry.messages] for entry in entries(world)]


def test_publish_shows_all_messages_of_a_call_in_one_entry(world: World) -> None:
    broadcast(world, "g")
    world.publish("a", "b")
    world.publish("c")
    first, second = entries(world)
    assert first == Entry(f"{START_MS}-0", 0, [("a", b"body of a"), ("b", b"body of b")])
    assert second == Entry(f"{START_MS}-1", 2, [("c", b"body of c")])
    assert world.run(broadcasting.now_at(world.keys)) == second.end == Mark(f"{START_MS}-1", 3)
    assert world.lease().ids == ["a", "b", "c"]


def test_an_entry_is_named_after_the_time_of_its_call(world: World) -> None:
    broadcast(world, "g")
    world.publish("a")
    world.publish("b")
    world.advance(SECOND)
    world.publish("c")
    assert [entry.id for entry in entries(world)] == [
        f"{START_MS}-0",
        f"{START_MS}-1",
        f"{START_MS + SECOND}-0",
    ]


def test_a_topic_with_broadcast_groups_alone_stores_nothing(world: World) -> None:
    broadcast(world)
    assert world.publish("a", prepared("b", "x" * 9000, digest="d")).status == "OK"
    assert shown(world) == [["a", "b"]]
    state = world.state()
    assert not state.keys() & {"bodies", "big", "backlog", "pending"}
    assert world.publish(prepared("b", "x" * 9000, digest="d")).verdicts == "D"
    assert shown(world) == [["a", "b"]]


def test_a_duplicate_and_a_repeated_call_are_shown_once(world: World) -> None:
    broadcast(world, "g")
    world.publish(prepared("a", digest="d"), seq=1)
    world.publish(prepared("a", digest="d"), seq=1)
    world.publish(prepared("a", digest="d"), seq=2)
    assert shown(world) == [["a"]]


def test_a_group_with_tags_does_not_keep_messages_from_broadcast_groups(world: World) -> None:
    world.subscribe("g", tags="red")
    broadcast(world)
    world.publish("a")
    assert shown(world) == [["a"]]
    assert "bodies" not in world.state()


def test_entries_are_kept_for_ten_minutes(world: World) -> None:
    broadcast(world)
    world.publish("a")
    world.advance(10 * MINUTE)
    world.publish("b")
    assert shown(world) == [["a"], ["b"]]
    world.advance(1)
    world.publish("c")
    (late, _) = entries(world)
    assert (late.first, shown(world)) == (1, [["b"], ["c"]])  # whoever expected 0 has missed one


LARGE = "x" * 10_000


def test_the_oldest_entries_go_when_the_stream_is_full_and_readers_see_the_gap(
    world: World,
) -> None:
    broadcast(world)
    world.client.hset(world.keys.meta, "cast_limit", 100_000)
    for n in range(30):
        world.publish(prepared(f"a{n}", LARGE))
        assert sum(len(data) for entry in entries(world) for _, data in entry.messages) <= 100_000
    kept = entries(world)
    assert [entry.messages[0][0] for entry in kept] == [f"a{n}" for n in range(21, 30)]
    assert kept[0].first == 21  # whoever expected less has missed so many
    assert world.run(broadcasting.now_at(world.keys)) == kept[-1].end
    assert "bodies" not in world.state()


def test_small_entries_are_dropped_by_their_bytes_and_what_is_old_does_not_count(
    world: World,
) -> None:
    broadcast(world)
    world.client.hset(world.keys.meta, "cast_limit", 100_000)
    for n in range(300):
        world.publish(prepared(f"a{n}", "x" * 1200))
    ids = [entry.messages[0][0] for entry in entries(world)]
    assert ids == [f"a{n}" for n in range(300 - len(ids), 300)]
    assert 90_000 < sum(64 + len(id_) + 1200 for id_ in ids) <= 100_000
    world.advance(11 * MINUTE)
    for n in range(70):
        world.publish(prepared(f"b{n}", "x" * 1200))
    assert shown(world) == [[f"b{n}"] for n in range(70)]


def test_an_entry_above_the_limit_is_shown_alone(world: World) -> None:
    broadcast(world)
    world.client.hset(world.keys.meta, "cast_limit", 5_000)
    world.publish(prepared("a", LARGE))
    assert shown(world) == [["a"]]
    world.publish(prepared("b", LARGE))
    assert shown(world) == [["b"]]


def test_a_partition_keeps_64_mib_of_what_it_broadcasts(world: World) -> None:
    broadcast(world)
    mib = "x" * 1024 * 1024
    for n in range(70):
        world.publish(prepared(f"a{n}", mib))
    assert shown(world) == [[f"a{n}"] for n in range(8, 70)]


def test_entries_go_on_when_the_clock_goes_back(world: World) -> None:
    broadcast(world)
    world.publish("a")
    world.set_time(START_MS - MINUTE)
    world.publish("b")
    world.set_time(START_MS + 1)
    world.publish("c")
    assert shown(world) == [["a"], ["b"], ["c"]]


def test_what_is_delayed_is_shown_when_it_is_due_and_wakes_the_readers_before(world: World) -> None:
    broadcast(world)
    world.publish(prepared("a", delay_ms=SECOND))
    world.publish(prepared("b", delay_ms=2 * SECOND))
    assert shown(world) == [[]]  # woken by what is due earlier than anything before
    assert set(world.state()["bodies"]) == {"a", "b"}
    world.advance(2 * SECOND)
    assert world.deliver()[:2] == ("OK", 2)
    assert shown(world) == [[], ["a", "b"]]
    assert "bodies" not in world.state()


def test_deliver_shows_at_most_4_mib_at_once(world: World) -> None:
    broadcast(world)
    large = "x" * (3 * 1024 * 1024)
    world.publish(prepared("a", large, delay_ms=1))
    world.publish(prepared("b", large, delay_ms=1))
    world.advance(1)
    assert world.deliver() == ("OK", 1, 0, None)
    assert world.deliver() == ("OK", 1, None, None)
    assert shown(world)[1:] == [["a"], ["b"]]


def test_a_committed_transaction_is_shown(world: World) -> None:
    broadcast(world, "g")
    world.damaged = True  # its halves have no record here
    prepare(world, halves("a", "b"))
    assert shown(world) == []
    commit(world)
    world.deliver()
    assert shown(world) == [["a", "b"]]
    assert world.lease().ids == ["a", "b"]


def test_tally_adds_up(world: World) -> None:
    keys = world.subscribe()
    with world.changes() as changed:
        for _ in range(2):
            assert world.run(broadcasting.tally(keys, {"succeed": 2, "fail": 1})) == 2
    assert changed == {"counters": {"succeed:g": 4, "fail:g": 2}}


def test_sweep_forgets_what_was_cast_ten_minutes_ago_segment_by_segment(world: World) -> None:
    broadcast(world)
    world.client.hset(world.keys.meta, "cast_limit", 64 * 1000)
    for name in ("a", "b", "c"):
        world.publish(prepared(name, "x" * 1000))
        world.advance(MINUTE)
    world.publish(prepared("d", "x"))
    assert world.sweep().next_ms == 7 * MINUTE
    world.set_time(START_MS + 11 * MINUTE)
    assert [world.sweep() for _ in range(3)] == [(1, 0, ()), (1, 0, ()), (0, MINUTE, ())]
    assert shown(world) == [["c"], ["d"]]
    end = world.run(broadcasting.now_at(world.keys))
    world.set_time(START_MS + 13 * MINUTE)
    assert [world.sweep() for _ in range(2)] == [(1, 0, ()), (1, None, ())]
    assert shown(world) == []
    assert world.client.hget(world.keys.meta, "cast_bytes") in {"0", b"0"}
    assert world.run(broadcasting.now_at(world.keys)) == end
    world.publish("e")
    assert [(entry.first, len(entry.messages)) for entry in entries(world)] == [(4, 1)]


def test_a_topic_that_keeps_what_was_consumed_keeps_what_was_cast_as_long(world: World) -> None:
    broadcast(world)
    keep(world, keep_ms=60 * MINUTE)
    world.publish("a")
    world.advance(30 * MINUTE)
    world.publish("b")
    assert world.sweep().next_ms == 60 * MINUTE
    assert shown(world) == [["a"], ["b"]]
    world.advance(31 * MINUTE)
    world.publish("c")
    assert shown(world) == [["b"], ["c"]]
