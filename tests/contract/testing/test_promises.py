"""What the lab's page promises beside time: every run the same, retention, and reaping."""

import os
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from rqretry import App, Message
from rqretry.core.parts import parts_of
from rqretry.testing import Lab
from rqretry.transport.sync_connection import SyncConnection

PROGRAM = """
    import asyncio
    from rqretry import App, Message, RetryPolicy
    from rqretry.testing import Lab

    app, seen = App(), []
    app.topic("t", partitions=4)

    @app.consumer(["t", "u"], group="g", policy=RetryPolicy.exponential("1s", jitter=0.5))
    async def async_handler(message: Message) -> None:
        seen.append((lab.now, "g", message.id, message.attempt))
        await asyncio.gather(*[app.publish("v", number) for number in range(3)])
        if message.attempt < 3:
            raise ValueError

    @app.consumer("v", group="v", rate_limit="50/s")
    def plain_handler(message: Message) -> None:
        seen.append((lab.now, "v", message.id, message.attempt))
        app.client.publish("w", 1)

    @app.consumer("w", group="w", broadcast=True)
    def listener(message: Message) -> None:
        seen.append((lab.now, "w", message.id))

    with Lab(app) as lab:
        for _ in range(3):
            lab.publish_many("t", range(10))
            with app.client.transaction("u") as tx:
                seen.append((tx.id, tx.publish(1)))
            lab.run_until_idle()
            lab.advance("1m")
        print(*seen, lab.admin.stats(), sep="\\n")
"""


def test_ids_and_the_order_of_ties_are_the_same_in_every_run() -> None:
    runs = [
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(PROGRAM)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    ]
    without_memory = [[line for line in run.splitlines() if line[0] == "("] for run in runs]
    assert without_memory[0] == without_memory[1]
    assert len(without_memory[0]) > 100


def failing(app: App) -> None:
    """A consumer whose messages die at once."""

    @app.consumer("t", group="g", max_retries=0)
    def fail(message: Message[Any]) -> None:
        raise ValueError(message.body)


def test_dead_letters_are_forgotten_in_virtual_time(lab: Lab) -> None:
    failing(lab.app(App()))
    lab.publish_many("t", range(3))
    assert lab.run_until_idle() == 3
    lab.admin.set_group("g", dlq_retention="2h")
    lab.advance("1h")
    lab.publish("t", 4)
    lab.advance("59m 59s")
    assert len(lab.admin.dead_letters("g")) == 4
    lab.advance("1s")
    (left,) = lab.admin.dead_letters("g")
    assert left.body == 4
    lab.advance("1h")
    assert lab.admin.dead_letters("g") == []
    assert lab.now == 3 * 3600


def test_the_reaper_does_what_is_due_where_only_simple_consumers_live(lab: Lab) -> None:
    lab.admin.create_topic("t", partitions=2)
    consumer = lab.client.simple_consumer("t", group="s", create_group=True, max_retries=0)
    lab.publish_many("t", range(5))
    lab.publish("t", "later", delay="10s")
    assert len(consumer.receive(10, invisible_duration=30, wait=0)) == 5
    assert lab.reap() == 0
    lab.advance("10s")
    assert lab.reap() == 1
    lab.advance("20s")
    assert lab.reap() == 5
    assert (lab.admin.stats(group="s").dead, lab.admin.stats(group="s").ready) == (5, 1)
    assert lab.reap() == 0


def test_a_message_at_any_attempt(lab: Lab) -> None:
    app, seen = lab.app(App()), []

    @app.consumer("t", group="g", max_retries=3)
    def fail(message: Message[Any]) -> None:
        seen.append((message.attempt, message.last_error and message.last_error.message))
        raise ValueError("again")

    order = lab.publish("t", 1)
    lab.next_attempt(order, 4, last_error="no more paper")
    assert lab.run_until_idle() == 1
    assert seen == [(4, "no more paper")]
    lab.assert_dead(order, reason="again")


def test_a_group_more_costs_as_much_as_the_one_before(lab: Lab) -> None:
    """So a thousand are made in seconds."""

    def calls(first: int, count: int) -> int:
        before, app = changes(lab), App()
        for number in range(first, first + count):
            app.consumer(f"t{number % 2}", group=f"g{number}")(handle)
        lab.app(app)
        return changes(lab) - before

    first, second = calls(0, 20), calls(20, 20)
    assert second <= first * 1.1


def changes(lab: Lab) -> int:
    """How many calls of the lab may have changed something."""
    counted: int = parts_of(lab.client).store.session.changes.total()  # type: ignore[attr-defined]
    return counted


def handle(message: Message[Any]) -> None:
    """Nothing."""


def test_what_many_groups_cost_follows_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    app, groups, trips = App(), 60, 0
    receive = SyncConnection.receive

    def counted(connection: SyncConnection, count: int, seconds: float | None = None) -> Any:
        nonlocal trips
        trips += 1
        return receive(connection, count, seconds)

    def fail_once(message: Message[int]) -> None:
        if message.attempt == 1:
            raise ValueError

    for number in range(groups):
        app.consumer(f"t{number}", group=f"g{number}")(fail_once)
    monkeypatch.setattr(SyncConnection, "receive", counted)
    with Lab(app, server="redis") as lab:
        joined, trips = trips, 0
        for number in range(groups):
            lab.publish(f"t{number}", number)
        assert lab.advance("1m") == 2 * groups
        assert joined < groups
        assert trips < 20 * groups
