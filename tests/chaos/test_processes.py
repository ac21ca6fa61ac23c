"""Processes are killed, stopped and told to go, and Redis is; every message is handled."""

import os
import signal
import subprocess
import time
from collections import Counter

import pytest

from tests.chaos.conftest import Zoo, alive
from tests.chaos.victims import VISIBILITY_S

pytestmark = pytest.mark.chaos


def test_a_worker_killed_in_a_handler_loses_its_message_to_another_within_a_second(
    zoo: Zoo,
) -> None:
    zoo.start()
    zoo.start()
    sent = zoo.client.publish("t", [60, 0])
    (first,) = zoo.wait_for(1)

    killed_at = time.monotonic()
    os.kill(first["pid"], signal.SIGKILL)
    _, second = zoo.wait_for(2)
    took = time.monotonic() - killed_at

    assert took <= VISIBILITY_S + 1.0
    assert (second["id"], second["attempt"]) == (sent, 2)
    assert second["pid"] != first["pid"]
    stats = zoo.committed(1)
    assert (stats.counters["expire"], stats.counters["lease"]) == (1, 2)


def test_the_supervisor_replaces_a_child_that_was_killed(zoo: Zoo) -> None:
    supervisor = zoo.start(processes=2)
    before = zoo.workers()
    victim = min(before)

    os.kill(victim, signal.SIGKILL)
    zoo.until(lambda: len(zoo.workers() - before) == 1)

    assert supervisor.poll() is None
    zoo.client.publish_many("t", [[0, 0]] * 20)
    zoo.committed(20)


def test_a_stopped_worker_that_wakes_up_late_cannot_settle(zoo: Zoo) -> None:
    zoo.start()
    sent = zoo.client.publish("t", [0.5, 0])
    (first,) = zoo.wait_for(1)
    os.kill(first["pid"], signal.SIGSTOP)
    zoo.start()

    _, second = zoo.wait_for(2)
    zoo.committed(1)
    os.kill(first["pid"], signal.SIGCONT)
    zoo.wait_for(2, "end")  # the late one has ended too, and had its chance to settle
    zoo.client.publish_many("t", [[0, 0]] * 8)
    stats = zoo.committed(9)

    assert (second["id"], second["attempt"]) == (sent, 2)
    assert second["pid"] != first["pid"]
    assert stats.counters["succeed"] == 9
    assert (stats.counters["expire"], stats.inflight, stats.ready, stats.retry) == (1, 0, 0, 0)


def test_a_redis_that_is_killed_and_restarted_in_a_run_loses_nothing(zoo: Zoo) -> None:
    zoo.start(processes=2)
    ids = zoo.client.publish_many("t", [[0.01, 0]] * 300)
    zoo.wait_for(60)

    zoo.server.kill()
    zoo.server.start()
    stats = zoo.committed(300)

    ended = Counter(line["id"] for line in zoo.ledger("end"))
    assert set(ended) == set(ids)
    assert stats.counters["succeed"] == 300
    assert (stats.dead, stats.ready, stats.retry, stats.inflight) == (0, 0, 0, 0)
    # Started twice only where the first lease or its end was cut off.
    assert sum(ended.values()) <= 300 + 2 * 4 * 2


def test_sigterm_under_load_loses_nothing_and_counts_nothing_that_had_not_started(
    zoo: Zoo,
) -> None:
    supervisor = zoo.start(processes=2)
    zoo.client.publish_many("t", [[0.02, 0.02]] * 400)
    zoo.wait_for(60)

    supervisor.terminate()
    status = supervisor.wait(10)

    stats = zoo.stats()
    started = len(zoo.ledger())
    assert status == 0
    assert stats.counters["succeed"] == started == len(zoo.ledger("end"))
    assert stats.ready + stats.retry == 400 - started > 0
    assert stats.inflight == 0
    assert not {"fail", "expire"} & stats.counters.keys()
    zoo.start()
    zoo.committed(400)
    assert {line["attempt"] for line in zoo.ledger()} == {1}


def test_sigterm_to_the_whole_process_group_is_one_signal_and_lets_handlers_finish(
    zoo: Zoo,
) -> None:
    supervisor = zoo.start(processes=2, grace=20)
    zoo.client.publish_many("t", [[1.0, 1.0]] * 4)
    zoo.wait_for(4)

    os.killpg(supervisor.pid, signal.SIGTERM)  # as systemd does
    assert supervisor.wait(10) == 0

    assert zoo.stats().counters["succeed"] == 4


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_does_not_wait_for_the_handlers(zoo: Zoo, second: signal.Signals) -> None:
    supervisor = zoo.start(grace=60)
    zoo.client.publish("t", [60, 0])
    zoo.wait_for(1)

    supervisor.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        supervisor.wait(0.5)
    start = time.monotonic()
    supervisor.send_signal(second)
    supervisor.wait(5)

    assert time.monotonic() - start < 3
    stats = zoo.stats()
    assert (stats.ready, stats.inflight, stats.counters["release"]) == (1, 0, 1)


def test_workers_whose_supervisor_was_killed_stop_by_themselves(zoo: Zoo) -> None:
    supervisor = zoo.start(processes=2)
    pids = zoo.workers()
    zoo.client.publish("t", [0.5, 0])
    zoo.wait_for(1)

    supervisor.kill()
    zoo.until(lambda: not zoo.workers())

    assert zoo.stats().counters["succeed"] == 1  # what ran could finish
    zoo.until(lambda: not any(map(alive, pids)))
    zoo.client.publish("t", [0, 0])
    assert zoo.stats().ready == 1
