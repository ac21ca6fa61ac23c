"""Replayable lanes: a task that is run again from its first row publishes each row once."""

import asyncio
from collections.abc import Sequence
from functools import partial

import pytest

from rqretry import Client, ConfigError, QueueFull
from rqretry.core.parts import parts_of
from rqretry.producer.lane import Publishing
from rqretry.producer.replayable_lane import (
    EPOCH_CALLS,
    LANE_TTL_MS,
    ReplayableLane,
    check_complete,
    is_closed,
    note,
    replay,
)
from rqretry.protocol.command import Operation
from rqretry.protocol.publish import PlainMessages, Prepared
from rqretry.transport.pipeline import in_turn
from tests.contract.integration.harness import NAMESPACE, Lab
from tests.support.faults.proxy import proxied
from tests.support.faults.rules import Fault, Rule

BASE = "rqretry:test:{t:0}:"


class Task:
    """One attempt of a task: a fresh client, the same lane."""

    def __init__(
        self,
        lab: Lab,
        epoch: int = 0,
        *,
        content: slice = slice(None),
        client: Client | None = None,
    ) -> None:
        self.client: Client = client or lab.client()
        parts_of(self.client).store.perform(
            parts_of(self.client).catalog.topics.get("t", create=True)
        )
        self.publishing = Publishing(
            parts_of(self.client).catalog, parts_of(self.client).store.clock
        )
        self.lane = ReplayableLane("t", 0, "job-0", epoch)
        self.content = content
        self.rows = 0

    def send(self, *bodies: str) -> None:
        parts_of(self.client).store.perform(self.chunk(*bodies))

    def send_ahead(self, *chunks: str) -> list[str]:
        """Chunks of which each is sent before the one in front is answered; what went wrong."""
        answers = parts_of(self.client).store.drive(
            in_turn(parts_of(self.client).store.session, (self.chunk(*chunk) for chunk in chunks))
        )
        return [type(answer).__name__ for answer in answers if isinstance(answer, Exception)]

    def chunk(self, *bodies: str, delay_ms: int | str = "") -> Operation[bool]:
        first, self.rows = self.rows, self.rows + len(bodies)
        ids = [f"e{self.lane.epoch}.{first + n}" for n in range(len(bodies))]
        data = [b"\x92\x01\xa1" + body.encode() for body in bodies]
        rows: Sequence[Prepared] = PlainMessages(ids, data)
        if delay_ms != "":
            rows = [row._replace(delay_ms=delay_ms) for row in rows]
        return replay(self.publishing, self.lane, rows, [one[self.content] for one in data])

    def finish(self) -> tuple[int, int]:
        parts_of(self.client).store.perform(check_complete(self.publishing, [self.lane]))
        return self.lane.sent, self.lane.known


def stored(lab: Lab) -> list[str]:
    return [id_.decode() for id_ in lab.redis.lrange(f"{BASE}backlog", 0, -1)]


async def test_a_task_that_starts_again_publishes_only_what_was_missing(lab: Lab) -> None:
    failed = Task(lab)
    failed.send("a", "b")
    failed.send("c")

    again = Task(lab)
    again.send("a", "b")
    again.send("c")
    again.send("d")

    assert again.finish() == (1, 3)
    assert stored(lab) == ["e0.0", "e0.1", "e0.2", "e0.3"]


async def test_a_task_that_was_complete_publishes_nothing_again(lab: Lab) -> None:
    for expected in ((2, 0), (0, 2), (0, 2)):
        task = Task(lab)
        task.send("a")
        task.send("b")
        assert task.finish() == expected
    assert len(stored(lab)) == 2


async def test_two_twins_at_the_same_time_publish_each_row_once(lab: Lab) -> None:
    first, second = Task(lab), Task(lab)
    first.send("a")
    second.send("a")
    second.send("b")
    second.send("c")
    first.send("b")
    first.send("c")
    first.send("d")
    second.send("d")
    assert [first.finish(), second.finish()] == [(2, 2), (2, 2)]
    assert len(stored(lab)) == 4


async def test_other_rows_in_the_place_of_published_ones_are_an_error(lab: Lab) -> None:
    before = Task(lab)
    before.send("a")
    before.send("b")

    changed = Task(lab)
    changed.send("x")
    with pytest.raises(ConfigError, match="job-0 has published other rows"):
        changed.send("b")
    assert len(stored(lab)) == 2


async def test_fewer_rows_than_were_published_are_an_error(lab: Lab) -> None:
    before = Task(lab)
    before.send("a")
    before.send("b")

    shorter = Task(lab)
    shorter.send("a")
    with pytest.raises(ConfigError, match="changed under it"):
        shorter.finish()
    with pytest.raises(ConfigError, match="changed under it"):
        Task(lab).finish()


async def test_the_next_epoch_publishes_anew_and_an_older_one_is_refused(lab: Lab) -> None:
    for epoch in (0, 1, 7):
        task = Task(lab, epoch)
        task.send("a")
        assert task.finish() == (1, 0)

    older = Task(lab, 1)
    older.send("a")
    with pytest.raises(ConfigError, match="changed under it"):
        older.finish()
    assert len(stored(lab)) == 3


async def test_an_epoch_without_rows_is_no_change(lab: Lab) -> None:
    first = Task(lab, 0)
    first.send("a")
    assert Task(lab, 1).finish() == (0, 0)


async def test_what_may_differ_between_attempts_is_left_out_of_the_comparison(lab: Lab) -> None:
    for dead_letter in ("a", "b"):
        task = Task(lab, content=slice(-1))
        task.send(dead_letter)
        task.finish()
    assert len(stored(lab)) == 1


async def test_a_lane_is_remembered_for_seven_days_under_numbers_of_its_epoch(lab: Lab) -> None:
    task = Task(lab, 2)
    task.send("a")
    assert LANE_TTL_MS - 10_000 < lab.redis.pttl(f"{BASE}lane:job-0") <= LANE_TTL_MS
    value = lab.redis.get(f"{BASE}lane:job-0").decode()
    assert value == f"{3 * EPOCH_CALLS + 1} {task.lane.chain}"


async def test_a_full_topic_stores_nothing_and_the_task_can_be_run_again(lab: Lab) -> None:
    task = Task(lab)
    task.client.admin.set_topic("t", max_messages=1)
    task.send("a")
    with pytest.raises(QueueFull):
        task.send("b")
    task.client.admin.set_topic("t", max_messages=None)
    again = Task(lab)
    again.send("a")
    again.send("b")
    assert again.finish() == (1, 1)


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize(
    "fault",
    [Fault.DROP_REQUEST, Fault.DROP_REPLY, Fault.CUT_REPLY, Fault.RESET, Fault.REPLAY],
)
async def test_chunks_sent_ahead_are_stored_once_and_in_order_whatever_happens_to_one(
    lab: Lab, fault: Fault, nth: int
) -> None:
    async with proxied(lab.server) as proxy:
        with Client(proxy.url, namespace=NAMESPACE) as client:
            task = await asyncio.to_thread(partial(Task, lab, client=client))
            proxy.rules = [Rule(fault, "publish", nth=nth)]
            assert await asyncio.to_thread(task.send_ahead, "ab", "c", "d", "ef") == []
            assert sum(await asyncio.to_thread(task.finish)) == 6
            assert proxy.struck == [("publish", fault)]

    assert stored(lab) == [f"e0.{n}" for n in range(6)]
    again = Task(lab)
    assert again.send_ahead("ab", "c", "d", "ef", "g") == []
    assert again.finish() == (1, 6)


async def test_nothing_is_published_behind_a_chunk_that_was_refused(lab: Lab) -> None:
    task = Task(lab)
    task.client.admin.set_topic("t", max_messages=3)
    assert task.send_ahead("ab", "cd", "e") == ["QueueFull", "StoreUnavailable"]
    assert stored(lab) == ["e0.0", "e0.1"]

    task.client.admin.set_topic("t", max_messages=None)
    again = Task(lab)
    assert again.send_ahead("ab", "cd", "e") == []
    assert again.finish() == (3, 2)
    assert stored(lab) == [f"e0.{n}" for n in range(5)]


async def test_a_chunk_that_cannot_depend_on_the_one_in_front_waits_for_it(lab: Lab) -> None:
    task = Task(lab)
    chunks = [task.chunk("a"), task.chunk("b", delay_ms=1), task.chunk("c")]
    store = parts_of(task.client).store
    assert store.drive(in_turn(store.session, chunks)) == [True] * 3
    assert task.finish() == (3, 0)
    assert stored(lab) == ["e0.0", "e0.2"]


async def test_twins_that_send_ahead_publish_each_row_once(lab: Lab) -> None:
    first, second = Task(lab), Task(lab)
    first.send("a")
    assert second.send_ahead("a", "b", "c") == []
    assert first.send_ahead("b", "c", "d") == []
    assert (first.finish(), second.lane.sent) == ((2, 2), 2)
    assert stored(lab) == [f"e0.{n}" for n in range(4)]


async def test_an_epoch_is_noted_once_and_by_one_plan(lab: Lab) -> None:
    task = Task(lab)
    mark = ReplayableLane("t", 0, "job-end", 0)

    def closed() -> bool:
        return parts_of(task.client).store.perform(is_closed(task.publishing, mark))

    assert not closed()
    parts_of(task.client).store.perform(note(task.publishing, mark, "two tasks"))
    assert closed()
    parts_of(task.client).store.perform(note(task.publishing, mark, "two tasks"))
    with pytest.raises(ConfigError, match="has published other rows to topic 't' before"):
        parts_of(task.client).store.perform(note(task.publishing, mark, "three tasks"))
    assert stored(lab) == []
