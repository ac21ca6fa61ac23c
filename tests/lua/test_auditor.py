"""The auditor sees what is wrong in a store that was damaged by hand, and nothing else."""

from collections.abc import Callable
from typing import Any

import pytest
import redis

from rqretry.checks.auditor import ERROR, WARNING, Finding, Snapshot, audit, judge
from rqretry.client import Client
from rqretry.command import Command, Pause
from rqretry.embedded import EmbeddedRedis
from rqretry.keys import partition_keys
from tests.support.builders import SECOND, failure, prepared
from tests.support.soundness import assert_sound
from tests.support.world import START_MS, World

Damage = Callable[[Any, World], object]

DAMAGES: list[tuple[str, Damage, list[tuple[str, str, str, str]]]] = [
    (
        "a message that a group owes and does not have",
        lambda c, w: c.lrem(w.group().ready, 0, "ready"),
        [(ERROR, "not delivered", "pending", "ready")],
    ),
    (
        "a body that no group has",
        lambda c, w: c.hset(w.keys.bodies, "stray", "x"),
        [(ERROR, "orphan body", "bodies", "stray")],
    ),
    (
        "a dead letter without a body",
        lambda c, w: c.hdel(w.keys.bodies, "dead"),
        [
            (ERROR, "missing body", "g:dead", "dead"),
            (ERROR, "missing body", "h:ready", "dead"),
            (ERROR, "missing body", "pending", "dead"),
        ],
    ),
    (
        "a scheduled message without a body",
        lambda c, w: c.hdel(w.keys.bodies, "scheduled"),
        [(ERROR, "missing body", "scheduled", "scheduled")],
    ),
    (
        "a backlog entry without a body",
        lambda c, w: c.rpush(w.keys.backlog, "stray"),
        [(ERROR, "missing body", "backlog", "stray")],
    ),
    (
        "a message in flight and waiting",
        lambda c, w: c.zadd(w.group().inflight, {"waiting": START_MS}),
        [(ERROR, "double booking", "g:delay:3", "waiting")],
    ),
    (
        "a message waiting and dead",
        lambda c, w: (
            c.zadd(w.group().dead, {"waiting": START_MS}),
            c.hset(w.group().graves, "waiting", "1 failure"),
        ),
        [(ERROR, "double booking", "g:delay:3", "waiting")],
    ),
    (
        "a message in flight that is still listed",
        lambda c, w: c.rpush(w.group().ready, "inflight"),
        [(WARNING, "leftover", "g:ready", "inflight")],
    ),
    (
        "a message listed in both lanes",
        lambda c, w: c.rpush(w.group().retry, "ready"),
        [(WARNING, "leftover", "g:retry", "ready")],
    ),
    (
        "a message listed twice in a lane",
        lambda c, w: c.rpush(w.group().ready, "ready"),
        [(WARNING, "leftover", "g:ready", "ready")],
    ),
    (
        "a message that its group has finished with",
        lambda c, w: c.hset(w.keys.pending, "ready", "b"),
        [(WARNING, "leftover", "g:ready", "ready")],
    ),
    (
        "a pending byte of no group",
        lambda c, w: c.hset(w.keys.pending, "ready", "ab\u007f"),
        [(ERROR, "unknown group", "pending", "ready")],
    ),
    (
        "pending groups of a message that is not stored",
        lambda c, w: c.hset(w.keys.pending, "stray", "a"),
        [(ERROR, "missing body", "pending", "stray")],
    ),
    (
        "the size of a body that is not stored",
        lambda c, w: c.hset(w.keys.big, "stray", 9000),
        [(WARNING, "leftover entry", "big", "stray")],
    ),
    (
        "numbers of a message that the group does not have",
        lambda c, w: c.hset(w.group().attempts, "stray", "2:2:0:0"),
        [(WARNING, "leftover entry", "g:attempts", "stray")],
    ),
    (
        "failures of a message that the group does not have",
        lambda c, w: c.hset(w.group().failures, "stray", "1 1 {}"),
        [(WARNING, "leftover entry", "g:failures", "stray")],
    ),
    (
        "a grave of a message that is not dead",
        lambda c, w: c.hset(w.group().graves, "ready", "1 failure"),
        [(WARNING, "leftover entry", "g:graves", "ready")],
    ),
    (
        "a dead letter without a grave",
        lambda c, w: c.hdel(w.group().graves, "dead"),
        [(WARNING, "no grave", "g:dead", "dead")],
    ),
    (
        "an index that is later than its level",
        lambda c, w: c.zadd(w.group().due, {"3": START_MS + 10 * SECOND + 1}),
        [(ERROR, "late index", "g:delay:3", "waiting")],
    ),
    (
        "a level that the index does not know",
        lambda c, w: c.delete(w.group().due),
        [(ERROR, "late index", "g:delay:3", "waiting")],
    ),
    (
        "an id to forget that is not remembered",
        lambda c, w: c.zadd(w.keys.id_expiry, {"stray": START_MS}),
        [(WARNING, "leftover entry", "id_expiry", "stray")],
    ),
    (
        "an index that is too early, which is harmless",
        lambda c, w: c.zadd(w.group().due, {"3": START_MS}),
        [],
    ),
]


def busy(world: World) -> World:
    """Two groups; group g has one message in every place."""
    world.subscribe("g")
    world.subscribe("h")
    world.leased("waiting", "dead", "inflight")
    world.fail(failure("waiting"), failure("dead", level=-1))
    world.publish("ready", prepared("scheduled", delay_ms=SECOND, digest="d"))
    return world


def short(world: World, finding: Finding) -> tuple[str, str, str, str]:
    key = finding.key.removeprefix(world.keys.base).removeprefix("group:")
    return finding.severity, finding.kind, key, finding.id


def test_the_auditor_finds_nothing_in_a_sound_partition(world: World) -> None:
    busy(world)
    assert world.findings() == []


def test_the_auditor_finds_nothing_in_an_empty_partition(world: World) -> None:
    assert world.findings() == []


@pytest.mark.parametrize(
    ("damage", "expected"),
    [(damage, expected) for _, damage, expected in DAMAGES],
    ids=[name for name, _, _ in DAMAGES],
)
def test_the_auditor_sees(
    world: World, damage: Damage, expected: list[tuple[str, str, str, str]]
) -> None:
    busy(world)
    damage(world.damage(), world)
    assert [short(world, finding) for finding in world.findings()] == expected


def test_the_auditor_changes_nothing(world: World) -> None:
    busy(world)
    world.damage().hset(world.keys.bodies, "stray", "x")
    with world.changes() as changed:
        assert len(world.findings()) == 1
    assert changed == {}


def test_the_auditor_reads_partitions_of_more_than_a_page(world: World) -> None:
    world.subscribe()
    ids = [f"m{n}" for n in range(1300)]
    for start in range(0, len(ids), 500):
        world.publish(*ids[start : start + 500])
    world.lease(100)
    big = prepared("big", "x" * 2_000_000)
    world.publish(big, *(prepared(f"b{n}", "x" * 300_000) for n in range(5)))
    assert world.findings() == []
    world.damage().hdel(world.keys.bodies, "m1299", "m50")
    assert [finding.id for finding in world.findings()] == ["m50", "m1299"]


def test_the_auditor_does_not_report_what_is_right_at_the_second_look(world: World) -> None:
    busy(world)
    world.client.hset(world.keys.bodies, "moving", "x")
    groups = [world.group("g"), world.group("h")]
    operation = audit(world.keys, groups)
    result: object = None
    with pytest.raises(StopIteration) as end:
        while True:
            step = operation.send(result)
            if isinstance(step, Pause):
                world.client.hdel(world.keys.bodies, "moving")
                result = None
            else:
                assert isinstance(step, Command)
                result = world.run(step)
    assert end.value.value == []


def test_a_group_of_any_byte_is_understood(world: World) -> None:
    world.subscribe("g")
    world.subscribe("h")
    world.configure("g", 2, byte=b"\xfa")
    world.configure("h", 2, byte=b"\x80")
    world.publish("a")
    world.client.hset(world.keys.pending, "a", b"\xfa\x80")
    assert world.findings() == []
    world.succeed(*world.leased("a", publish=False))
    assert world.client.hgetall(world.keys.pending) == {b"a": b"\x80"}
    assert world.findings() == []


def test_an_empty_snapshot_has_no_findings(world: World) -> None:
    assert judge(Snapshot(world.keys)) == []


def test_assert_sound_reads_every_partition_of_a_namespace(server: EmbeddedRedis) -> None:
    with Client(server.url, namespace="n") as client:
        assert_sound(client.store, "n")
        client.admin.create_topic("orders", partitions=2)
        for number in range(8):
            client.publish("orders", {"order": number})
        assert_sound(client.store, "n")
        stray = partition_keys("n", "orders", 1).bodies
        with redis.Redis(unix_socket_path=str(server.socket_path)) as raw:
            raw.hset(stray, "stray", "x")
        with pytest.raises(AssertionError, match=r"error: .*:bodies stray: a body is stored"):
            assert_sound(client.store, "n")


def test_assert_sound_of_a_namespace_that_was_never_used_writes_nothing(
    server: EmbeddedRedis,
) -> None:
    with Client(server.url, namespace="n") as client:
        assert_sound(client.store, "n")
    with redis.Redis(unix_socket_path=str(server.socket_path)) as raw:
        assert raw.dbsize() == 0
