"""RocketMQ's whole ladder with a real worker, on a virtual clock."""

from typing import Any

from rqretry import ConsumeResult, Message
from rqretry.core.parts import parts_of
from rqretry.protocol.maintain import promote
from tests.contract.integration.harness import Lab, Seen, counted
from tests.support.lua_hooks import CLOCK_KEY, virtual_time

START_MS = 1_000_000_000
WAITS_S = [10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]
LEVELS = "rqretry:test:{t:0}:group:g:delay"


def waiting(lab: Lab) -> list[tuple[int, int]]:
    """The level and the due time of everything that waits."""
    found = []
    for level in range(1, 19):
        for _, due in lab.redis.zrange(f"{LEVELS}:{level}", 0, -1, withscores=True):
            found.append((level, int(due)))
    return found


async def test_sixteen_waits_then_seventeen_deliveries_then_dead_at_once(lab: Lab) -> None:
    lab.library = library = virtual_time()
    now = START_MS
    lab.redis.set(CLOCK_KEY, now)
    app, client, seen = lab.app(), lab.client(library=library), Seen()

    @app.consumer("t", group="g")
    async def handle(message: Message[Any]) -> ConsumeResult:
        seen.add(message)
        return ConsumeResult.failure("never")

    waits, levels = [], []
    async with lab.working(app, library=library):
        sent = client.publish("t", "climber")
        keys = parts_of(client).catalog.group_keys("t", 0, "g")
        for delivery in range(1, 17):
            await counted(lab, "g", fail=delivery, lease=delivery)
            ((level, due),) = waiting(lab)
            waits.append((due - now) / 1000)
            levels.append(level)
            lab.redis.set(CLOCK_KEY, due - 1)
            assert (
                parts_of(client).store.run(promote(keys, worker="test")).moved == 0
            )  # never too early
            lab.redis.set(CLOCK_KEY, now := due)
            assert parts_of(client).store.run(promote(keys, worker="test")).moved == 1
        await counted(lab, "g", fail=17, lease=17, dead=1)

    assert waits == WAITS_S
    assert levels == list(range(3, 19))
    assert (sum(waits), now - START_MS) == (17_140, 17_140_000)
    assert seen.attempts == list(range(1, 18))
    assert [message.reconsume_times for message in seen.messages] == list(range(17))
    assert {message.id for message in seen.messages} == {sent}
    assert waiting(lab) == []
    ((id_, dead_since),) = lab.redis.zrange(
        "rqretry:test:{t:0}:group:g:dead", 0, -1, withscores=True
    )
    assert (id_.decode(), int(dead_since)) == (sent, now)  # no further wait


async def test_more_retries_than_the_ladder_is_long_wait_its_last_step(lab: Lab) -> None:
    lab.library = library = virtual_time()
    now = START_MS
    lab.redis.set(CLOCK_KEY, now)
    app, client, seen = lab.app(), lab.client(library=library), Seen()

    @app.consumer("t", group="g", max_retries=19)
    async def handle(message: Message[Any]) -> ConsumeResult:
        seen.add(message)
        return ConsumeResult.FAILURE

    waits = []
    async with lab.working(app, library=library):
        client.publish("t", "climber")
        keys = parts_of(client).catalog.group_keys("t", 0, "g")
        for delivery in range(1, 20):
            await counted(lab, "g", fail=delivery)
            ((_, due),) = waiting(lab)
            waits.append((due - now) / 1000)
            lab.redis.set(CLOCK_KEY, now := due)
            parts_of(client).store.run(promote(keys, worker="test"))
        await counted(lab, "g", fail=20, dead=1)

    assert waits == [*WAITS_S, 7200, 7200, 7200]
