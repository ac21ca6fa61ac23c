"""The history (one entry per call, bounded in bytes) and logical time (never back)."""

from rqretry.protocol import inspect
from tests.support.builders import HOUR, MINUTE, SECOND, failure
from tests.support.world import START_MS, VISIBILITY_MS, World


def ids(world: World) -> list[str]:
    return [id_ for id_, _ in world.run(inspect.history(world.keys, start="-"))]


def meta(world: World) -> dict[str, str]:
    return {k.decode(): v.decode() for k, v in world.client.hgetall(world.keys.meta).items()}


def test_history_has_one_entry_per_call_whatever_the_batch(world: World) -> None:
    world.subscribe()
    receipts = world.leased("a", "b", "c")
    world.succeed(*receipts)
    assert world.history() == ["publish  p a b c", "lease g w1 a b c", "succeed g w1 a b c"]


def test_history_ids_are_logical_time_and_a_number_within_it(world: World) -> None:
    world.subscribe()
    for id_ in ("a", "b", "c"):
        world.publish(id_)
    world.advance(1)
    world.publish("d")
    world.publish("e")
    assert ids(world) == [
        f"{START_MS}-0", f"{START_MS}-1", f"{START_MS}-2",
        f"{START_MS + 1}-0", f"{START_MS + 1}-1",
    ]  # fmt: skip


def test_history_goes_on_in_order_when_the_clock_goes_back(world: World) -> None:
    world.subscribe()
    world.publish("a")
    world.set_time(START_MS - HOUR)
    world.publish("b")
    world.advance(SECOND)
    world.publish("c")
    assert ids(world) == [f"{START_MS}-0", f"{START_MS}-1", f"{START_MS + SECOND}-0"]


def test_time_runs_on_from_its_mark_when_the_clock_goes_back(world: World) -> None:
    world.subscribe()
    world.leased("a")
    world.set_time(START_MS - HOUR)
    assert world.expire().now_ms == START_MS
    world.publish("b")  # notes the offset
    world.advance(VISIBILITY_MS - 1)
    assert world.expire().moved == 0
    world.advance(1)
    assert world.expire()[:3] == (False, START_MS + VISIBILITY_MS, 1)


def test_time_follows_the_clock_again_once_it_is_past_the_mark(world: World) -> None:
    world.subscribe()
    world.publish("a")
    world.set_time(START_MS - MINUTE)
    world.publish("b")
    assert meta(world)["offset"] == str(MINUTE)
    world.advance(SECOND)
    assert world.publish("c").now_ms == START_MS + SECOND
    world.set_time(START_MS + HOUR)
    assert world.publish("d").now_ms == START_MS + HOUR
    assert meta(world)["offset"] == "0"


def test_a_lease_does_not_grow_longer_when_the_clock_goes_back(world: World) -> None:
    world.subscribe()
    world.publish("a")
    world.set_time(START_MS - HOUR)
    world.lease()
    assert world.state()["g:inflight"] == {"a": START_MS + VISIBILITY_MS}
    world.publish("b")
    world.fail(failure("a"))
    assert world.state()["g:delay:3"] == {"a": START_MS + 10 * SECOND}


def test_history_drops_its_oldest_entries_past_its_limit_and_counts_them(world: World) -> None:
    world.subscribe()
    world.client.hset(world.keys.meta, "limit", 1000)
    for n in range(50):
        world.publish(f"message-{n:02}")
    kept = world.history()
    size = 64 + len("publish" + "p" + "message-00")
    assert len(kept) == 1000 // size
    assert kept[-1] == "publish  p message-49"
    assert int(meta(world)["dropped"]) == 50 - len(kept)
    assert int(meta(world)["bytes"]) == size * len(kept)
    assert meta(world)["lost"] == f"{START_MS}-{50 - len(kept) - 1}"
    assert ids(world)[0] == f"{START_MS}-{50 - len(kept)}"


def test_history_keeps_an_entry_that_is_bigger_than_its_limit_alone(world: World) -> None:
    world.subscribe()
    world.client.hset(world.keys.meta, "limit", 100)
    world.publish("a")
    world.publish(*(f"message-{n}" for n in range(50)))
    assert len(world.history()) == 1
    world.publish("b")
    assert world.history() == ["publish  p b"]


def test_history_catches_up_with_a_lowered_limit_a_few_entries_per_call(world: World) -> None:
    world.subscribe()
    for n in range(30):
        world.publish(f"m{n}")
    world.client.hset(world.keys.meta, "limit", 300)
    world.publish("x")
    assert len(world.history()) == 30 + 1 - 8
    for n in range(5):
        world.publish(f"y{n}")
    assert int(meta(world)["bytes"]) <= 300


def test_history_keeps_the_failure_lines_of_a_call(world: World) -> None:
    world.subscribe()
    world.leased("a", "b")
    world.fail(failure("a", record='{"n":1}'), failure("b", record='{"n":2}'))
    entries = world.run(inspect.history(world.keys, start="-"))
    assert entries[-1][1]["b"] == b'{"n":1}\n{"n":2}'
