"""Periodic messages while workers are killed: each second has one message."""

import os
import signal
import time
from datetime import datetime

import pytest

from rqretry.core.schedule import message_id
from tests.chaos.conftest import Zoo

pytestmark = pytest.mark.chaos

SLOTS = 10


@pytest.mark.parametrize("durable_server", ["redis-7"], indirect=True)
def test_every_second_has_one_message_while_workers_are_killed(zoo: Zoo) -> None:
    zoo.start(processes=3, app="victims_periodic:app")
    zoo.wait_for(1)
    for _ in range(SLOTS):
        children = sorted(zoo.children())
        if len(children) > 1:
            os.kill(children[time.monotonic_ns() % len(children)], signal.SIGKILL)
        seen = len({line["id"] for line in zoo.ledger()})
        zoo.until(lambda seen=seen: len({line["id"] for line in zoo.ledger()}) > seen)  # type: ignore[misc]

    zoo.client.admin.pause_schedule("tick")
    last = zoo.client.admin.schedule("tick").last_id
    zoo.until(lambda: last in {line["id"] for line in zoo.ledger()})
    handled = sorted({line["id"] for line in zoo.ledger()})
    begin, end = (
        int(datetime.fromisoformat(id_[5:]).timestamp()) for id_ in handled[:: len(handled) - 1]
    )
    assert handled == [message_id("tick", slot) for slot in range(begin, end + 1)]
    counters = zoo.client.admin.stats("tick").topics[0].groups[0].counters
    assert counters["publish"] == len(handled) >= SLOTS
