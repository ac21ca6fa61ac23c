"""At maxmemory publish is refused and everything else still drains."""

from collections.abc import Iterator

import pytest

from rqretry.core.errors import QueueFull
from rqretry.protocol.scripts import ScriptLibrary
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.lua.conftest import virtual_time
from tests.lua.crash_cases_kept import MB, keep
from tests.support.backends import server_backend
from tests.support.builders import HOUR, SECOND, failure, prepared
from tests.support.lua_hooks import VIRTUAL
from tests.support.world import VISIBILITY_MS, World


@pytest.fixture
def full(server: EmbeddedRedis) -> Iterator[World]:
    """A world to fill; the server gets its memory back afterwards."""
    backend = server_backend(server.version, server.url, virtual_time())
    world = World(backend)
    yield world
    world.client.config_set("maxmemory", 0)
    backend.close()


def fill(world: World) -> None:
    world.client.config_set("maxmemory", 1)


def advance(world: World, ms: int) -> None:
    """The virtual clock is a key, so setting it needs memory."""
    world.client.config_set("maxmemory", 0)
    world.advance(ms)
    fill(world)


def test_publish_at_maxmemory_is_refused_and_stores_nothing(full: World) -> None:
    full.subscribe()
    fill(full)
    with full.changes() as changed, pytest.raises(QueueFull, match="memory limit"):
        full.publish("a")
    assert changed == {}
    full.client.config_set("maxmemory", 0)
    assert full.publish("a").status == "OK"


def test_catching_up_at_maxmemory_is_refused_and_goes_on_later(full: World) -> None:
    full.subscribe("g")
    full.publish("a")
    full.subscribe("h", paused=1, catching_up=1)
    fill(full)
    with full.changes() as changed, pytest.raises(QueueFull, match="memory limit"):
        full.catch_up()
    assert changed == {}
    full.client.config_set("maxmemory", 0)
    assert full.catch_up().given == 1


def test_everything_else_drains_at_maxmemory(full: World) -> None:
    full.subscribe("g", max_retries=3)
    full.publish("a", "b", "c", "d", prepared("later", delay_ms=SECOND, digest="x"))
    fill(full)
    (a, b, _, _) = full.leased("a", "b", "c", "d", publish=False)
    assert full.renew(a) == ["OK"]
    assert full.succeed(a) == ["OK"]
    assert full.release(b) == ["OK"]
    failed = full.fail(failure("c", delay_ms=SECOND), failure("d", level=-1))
    assert [f.dead for f in failed] == [False, True]
    advance(full, SECOND)
    assert full.promote().moved == 1
    assert full.deliver()[:2] == ("OK", 1)
    assert sorted(full.lease().ids) == ["b", "c", "later"]
    advance(full, VISIBILITY_MS)
    assert full.expire().moved == 3
    leased = full.lease()
    receipts = [
        type(a)(id_, lease_no)
        for id_, (lease_no, _) in zip(leased.ids, leased.numbers, strict=True)
    ]
    assert full.change(receipts[0], 60 * SECOND) == receipts[0].lease_no + 1
    assert full.succeed(*receipts) == ["STALE", "OK", "OK"]
    assert full.redrive("d") == ["OK"]
    assert full.lease().ids == ["d"]
    full.fail(failure("d", 3, level=-1))
    assert full.purge("d") == ["OK"]
    advance(full, HOUR)
    assert full.sweep().forgotten == 1
    full.configure("g", 2, paused=0)
    full.subscribe("h")
    assert full.expire().moved == 1  # its second expiry: it waits by the ladder
    advance(full, HOUR)
    assert full.promote().moved == 1
    assert full.lease().ids == [receipts[0].id]


def test_what_is_kept_goes_before_a_full_server_refuses_publishes(server: EmbeddedRedis) -> None:
    linked = {name: text for name, text in VIRTUAL.items() if name != "nearly_full"}
    backend = server_backend(server.version, server.url, ScriptLibrary(overrides=linked))
    world = World(backend)
    world.subscribe()
    keep(world, keep_bytes=100 * MB)
    for number in range(8):
        world.publish(prepared(f"m{number}", b"x" * MB))
        assert world.succeed(*world.leased(f"m{number}", publish=False)) == ["OK"]
    used = int(world.client.info("memory")["used_memory"])
    world.client.config_set("maxmemory", used)
    try:
        with pytest.raises(QueueFull):
            world.publish("refused")
        for _ in range(3):
            world.sweep(1, groups=["g"])
        assert 4 <= world.client.zcard(world.keys.kept) < 8
        assert world.publish("taken").status == "OK"
    finally:
        world.client.config_set("maxmemory", 0)
        backend.close()
