"""The history: one entry per call, bounded in bytes."""

import math
from typing import Any

import pytest

from rqretry.core.history_notes import decode_times
from rqretry.protocol import inspect, lease
from rqretry.protocol.command import Command
from tests.support.builders import failure
from tests.support.world import START_MS, WORKER, World


def ids(world: World) -> list[str]:
    return [id_ for id_, _ in world.run(inspect.history(world.keys, start="-"))]


def meta(world: World) -> dict[str, str]:
    return {k.decode(): v.decode() for k, v in world.client.hgetall(world.keys.meta).items()}


def test_history_has_one_entry_per_call_whatever_the_batch(world: World) -> None:
    world.subscribe()
    receipts = world.leased("a", "b", "c")
    world.succeed(*receipts)
    assert world.history() == ["publish  p a b c", "lease g w1 a b c", "succeed g w1 a b c"]


def test_history_ids_are_logical_time_and_the_number_of_the_entry(world: World) -> None:
    world.subscribe()
    for id_ in ("a", "b", "c"):
        world.publish(id_)
    world.advance(1)
    world.publish("d")
    world.publish("e")
    assert ids(world) == [
        f"{START_MS}-1", f"{START_MS}-2", f"{START_MS}-3",
        f"{START_MS + 1}-4", f"{START_MS + 1}-5",
    ]  # fmt: skip


def test_a_history_has_one_epoch_from_its_first_subscription_on(world: World) -> None:
    world.subscribe()
    world.advance(1)
    world.subscribe("h")
    assert int(world.client.hget(world.keys.meta, "epoch")) == START_MS


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
    assert meta(world)["lost"] == f"{START_MS}-{50 - len(kept)}"
    assert ids(world)[0] == f"{START_MS}-{50 - len(kept) + 1}"


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


@pytest.mark.parametrize("verb", ["succeed", "fail", "release"])
def test_history_keeps_when_the_handlers_ran_of_what_is_done(world: World, verb: str) -> None:
    keys = world.subscribe()
    a, b, c = world.leased("a", "b", "c")
    stale = b._replace(lease_no=9)
    times = lease.encode_times([0.064, 0.0008, 1.0, 2.0, math.nan, math.nan])
    three: dict[str, Command[Any]] = {
        "succeed": lease.succeed(keys, [a, stale, c], worker=WORKER, times=times),
        "fail": lease.fail(
            keys,
            [failure("a"), failure("b", lease_no=9), failure("c")],
            worker=WORKER,
            tracebacks={"f": "trace"},
            times=times,
        ),
        "release": lease.release(keys, [a, stale, c], worker=WORKER, times=times),
    }
    world.run(three[verb])
    fields = world.run(inspect.history(world.keys, start="-"))[-1][1]
    assert (fields["e"], fields["i"]) == (verb.encode(), b"a c")
    known = decode_times(fields["t"], 2, 0)
    assert known == pytest.approx((0.064, 0.0008), rel=0.0005)
    assert decode_times(fields["t"], 2, 1) is None
    assert int(meta(world)["bytes"]) == sum(
        64 + sum(len(value) for value in entry.values())
        for _, entry in world.run(inspect.history(world.keys, start="-"))
    )


def test_history_has_no_times_where_no_handler_ran(world: World) -> None:
    world.subscribe()
    world.succeed(*world.leased("a"))
    assert "t" not in world.run(inspect.history(world.keys, start="-"))[-1][1]


def test_a_handler_that_ran_for_days_ran_as_long_as_can_be_noted() -> None:
    assert decode_times(lease.encode_times([1.0, 1e6]), 1, 0) == (1.0, 65504.0)
