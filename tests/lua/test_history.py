"""The history: one entry per call, bounded in bytes."""

from rqretry.protocol import inspect
from tests.support.builders import failure
from tests.support.world import START_MS, World


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
