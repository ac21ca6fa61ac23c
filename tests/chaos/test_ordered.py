"""Ordered groups while workers are killed: the order of every message group, and one at a time.

TESTS_CHAOS=full runs the size of the promise: 100 message groups of 100 messages.
"""

import json
import os
import random
import signal
import time
from collections import defaultdict
from typing import Any

import pytest

from rqretry import OutgoingMessage
from tests.chaos.conftest import Zoo
from tests.chaos.victims_ordered import FAILURES

pytestmark = pytest.mark.chaos

FULL = os.environ.get("TESTS_CHAOS") == "full"
NAMES, EACH = (100, 100) if FULL else (20, 20)
KILL_EVERY_S = 2.0
LEAST_KILLS = 5 if FULL else 2
PATIENCE_S = 240.0 if FULL else 60.0


@pytest.mark.timeout(2 * PATIENCE_S)
def test_message_groups_stay_in_order_while_workers_fail_and_are_killed(zoo: Zoo) -> None:
    names = [f"order-{n}" for n in range(NAMES)]
    messages = [
        OutgoingMessage(body={"n": n, "fails": (n + m) % 10 == 0}, message_group=name)
        for n in range(EACH)
        for m, name in enumerate(names)
    ]
    zoo.start(processes=4, app="victims_ordered:app")
    zoo.client.publish_many("t", messages)

    kills = kill_until_done(zoo, NAMES * EACH)

    stats = zoo.stats()
    assert (stats.dead, stats.ready, stats.retry, stats.inflight, stats.blocked) == (0, 0, 0, 0, 0)
    assert stats.counters["succeed"] == NAMES * EACH
    assert kills >= LEAST_KILLS
    lines = [json.loads(line) for line in zoo.redis.lrange("ledger", 0, -1)]
    check_order(lines, names)
    check_one_at_a_time(lines)
    tries = [int(count) for count in zoo.redis.hvals("failed")]
    assert len(tries) == NAMES * EACH // 10
    assert min(tries) > FAILURES


def kill_until_done(zoo: Zoo, count: int) -> int:
    """Kill a worker every two seconds, or (the small size) at each third of the way."""
    chance, kills, started = random.Random(0), 0, time.monotonic()
    done = 0
    while done < count:
        passed = time.monotonic() - started
        assert passed < PATIENCE_S, zoo.stats()
        due = passed // KILL_EVERY_S if FULL else 3 * done // count
        alive = zoo.children() if due > kills else set()
        if len(alive) > 1:  # a busy machine is slow to replace those that were killed
            victim = chance.choice(sorted(alive))
            os.kill(victim, signal.SIGKILL)
            zoo.redis.rpush("ledger", json.dumps({"what": "kill", "pid": victim}))
            kills += 1
        time.sleep(0.02)
        done = zoo.stats().counters.get("succeed", 0)
    return kills


def check_order(lines: list[dict[str, Any]], names: list[str]) -> None:
    """Each message ends after the one before it; again only if a kill hid that it had ended."""
    ended: dict[str, list[int]] = defaultdict(list)
    for line in lines:
        if line["what"] == "end":
            ended[line["name"]].append(line["n"])
    for name in names:
        assert sorted(ended[name]) == ended[name], name
        assert list(dict.fromkeys(ended[name])) == list(range(EACH)), name


def check_one_at_a_time(lines: list[dict[str, Any]]) -> None:
    """No attempt of a message group starts while another one runs in a process that lives."""
    running: dict[str, tuple[int, int]] = {}
    for line in lines:
        if line["what"] == "kill":
            running = {name: who for name, who in running.items() if who[0] != line["pid"]}
        elif line["what"] == "start":
            assert line["name"] not in running, (line, running[line["name"]])
            running[line["name"]] = (line["pid"], line["n"])
        elif running.get(line["name"]) == (line["pid"], line["n"]):
            del running[line["name"]]
