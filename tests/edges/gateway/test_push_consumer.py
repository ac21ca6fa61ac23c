"""Push consumers of the official client: their failures are attempts like those of a worker."""

import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from rqretry import Client, RetryPolicy
from rqretry.core.parts import parts_of
from tests.edges.gateway.official import Official

_WAIT_S = 25


def push_group(client: Client, group: str, topic: str, **settings: Any) -> None:
    """What a Python worker of the group makes at its start."""
    client.admin.create_topic(topic)
    parts_of(client).store.perform(
        parts_of(client).catalog.join(group, "push", [topic], **settings)
    )


def until_dead(client: Client, group: str) -> Any:
    done = threading.Event()
    for _ in range(_WAIT_S * 10):
        found = client.admin.dead_letters(group)
        if found:
            return found[0]
        done.wait(0.1)
    raise AssertionError("nothing died")


def test_failures_are_retried_by_the_groups_policy_until_the_message_is_dead(
    official: Official, client: Client
) -> None:
    push_group(client, "invoicing", "bills", policy=RetryPolicy.ladder("1s"), max_retries=1)
    seen: queue.Queue[tuple[bytes, int]] = queue.Queue()

    def handle(message: Any) -> bool:
        seen.put((message.body, message.delivery_attempt))
        return bool(message.body == b"flaky" and message.delivery_attempt == 2)

    consumer = official.push("invoicing", "bills", handle)
    producer = official.producer("bills")
    flaky = producer.send(official.message("bills", b"flaky")).message_id
    bad = producer.send(official.message("bills", b"bad")).message_id
    found = {seen.get(timeout=_WAIT_S) for _ in range(4)}
    assert found == {(b"flaky", 1), (b"flaky", 2), (b"bad", 1), (b"bad", 2)}
    dead = until_dead(client, "invoicing")
    assert (dead.id, dead.cause, dead.attempt) == (bad, "failure", 2)
    assert all("client" in error.message for error in dead.errors)
    found_events = client.admin.timeline(flaky)
    verbs = [event.event for event in found_events if event.group == "invoicing"]
    assert verbs == ["lease", "fail", "promote", "lease", "succeed"]
    assert {event.worker for event in found_events if event.event == "fail"} == {consumer.client_id}


def test_an_ordered_group_retries_on_the_server_and_keeps_the_order(
    official: Official, client: Client
) -> None:
    push_group(
        client, "ledger", "entries", ordered=True, policy=RetryPolicy.fixed(0.05), max_retries=2
    )
    seen: queue.Queue[tuple[bytes, int]] = queue.Queue()

    def handle(message: Any) -> bool:
        seen.put((message.body, message.delivery_attempt))
        return bool(message.body != b"first")

    consumer = official.push("ledger", "entries", handle)
    assert consumer.fifo
    producer = official.producer("entries")
    for body in (b"first", b"second", b"third"):
        producer.send(official.message("entries", body, message_group="account-1"))
    found = [seen.get(timeout=_WAIT_S) for _ in range(5)]
    assert found == [
        (b"first", 1), (b"first", 2), (b"first", 3), (b"second", 1), (b"third", 1),
    ]  # fmt: skip
    assert until_dead(client, "ledger").attempt == 3


def test_the_program_of_the_documentation_runs(
    gateway: str, client: Client, tmp_path: Path
) -> None:
    push_group(client, "billing", "orders", policy=RetryPolicy.ladder("1s"))
    program = Path(__file__).parents[3] / "docs/examples/rocketmq_client.py"
    ran = subprocess.run(
        [sys.executable, program, gateway],
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True, text=True, timeout=_WAIT_S, check=False,
    )  # fmt: skip
    sent, *attempts = sorted(ran.stdout.splitlines(), reverse=True)
    assert sent.startswith("sent 01"), ran.stderr
    assert attempts == ['attempt 2: {"order": 1}', 'attempt 1: {"order": 1}']


def test_a_consumer_of_another_kind_is_refused(official: Official, client: Client) -> None:
    push_group(client, "pushed", "kinds")
    consumer = official.simple("pushed", "kinds")
    with pytest.raises(Exception, match="group of a push consumer and cannot also be simple"):
        consumer.receive(1, 30)
