"""The auditor sees what is wrong in a store that was damaged by hand, and nothing else."""

import pytest
import redis

from rqretry.checks.auditor import Defect, Snapshot, audit, judge
from rqretry.client import Client
from rqretry.core.parts import parts_of
from rqretry.protocol.command import Command, Pause
from rqretry.protocol.keys import partition_keys
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.lua.damages import DAMAGES, Damage, busy
from tests.support.builders import prepared
from tests.support.soundness import assert_sound
from tests.support.world import World


def short(world: World, finding: Defect) -> tuple[str, str, str, str]:
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
        assert_sound(parts_of(client).store, "n")
        client.admin.create_topic("orders", partitions=2)
        for number in range(8):
            client.publish("orders", {"order": number})
        assert_sound(parts_of(client).store, "n")
        stray = partition_keys("n", "orders", 1).bodies
        with redis.Redis(unix_socket_path=str(server.socket_path)) as raw:
            raw.hset(stray, "stray", "x")
        with pytest.raises(AssertionError, match=r"error: .*:bodies stray: a body is stored"):
            assert_sound(parts_of(client).store, "n")


def test_assert_sound_of_a_namespace_that_was_never_used_writes_nothing(
    server: EmbeddedRedis,
) -> None:
    with Client(server.url, namespace="n") as client:
        assert_sound(parts_of(client).store, "n")
    with redis.Redis(unix_socket_path=str(server.socket_path)) as raw:
        assert raw.dbsize() == 0
