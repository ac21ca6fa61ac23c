"""Ordered groups at the command line: limits, what is blocked and for how long."""

from rqretry import Client
from rqretry.core.failure_record import describe_cause
from rqretry.core.parts import parts_of
from rqretry.core.receipt import Receipt
from rqretry.protocol.lease import Failure, fail, lease
from tests.edges.cli.shell import Shell


def block(client: Client, topic: str, group: str) -> None:
    """What is ready fails once."""
    keys = parts_of(client).catalog.group_keys(topic, 0, group)
    found = parts_of(client).store.run(
        lease(keys, worker="w", want=10, visibility_ms=60_000, prefer="ready")
    )
    record = describe_cause("failure", "no such order", "w")
    for id_, (lease_no, _) in zip(found.ids, found.numbers, strict=True):
        failure = Failure(Receipt(id_, lease_no), 0, "", 0.5, "failure", record)
        parts_of(client).store.run(fail(keys, [failure], worker="w", tracebacks={}))


def test_status_shows_which_message_groups_are_blocked_and_for_how_long(
    shell: Shell, client: Client
) -> None:
    client.admin.create_topic("orders")
    client.simple_consumer("orders", group="g", create_group=True, ordered=True)
    client.admin.set_group("g", policy="fixed:30s")
    first = client.publish("orders", 1, message_group="x")
    client.publish("orders", 2, message_group="x")
    queued = client.publish("orders", 3)
    assert "blocked for" not in shell.ok("status")
    block(client, "orders", "g")

    shown = shell.ok("status")
    assert f" by message {first}, attempt 2, with 1 message behind it" in shown
    assert "message group x of partition 0 has been blocked for" in shown
    assert "the queue of partition 0 has been blocked for" in shown
    assert f" by message {queued}, attempt 2, with 0 messages behind it" in shown
    assert "messages without a message group one at a time in each partition" in shown
    (group,) = shell.json("status")["topics"][0]["groups"]
    assert (group["blocked_groups"], group["unordered"]) == (2, "queue")
    assert {b["message_group"]: b["behind"] for b in group["blockers"]} == {"x": 1, None: 0}
    assert group["blocked_s"] == max(b["blocked_s"] for b in group["blockers"])


def test_an_ordered_group_without_a_limit_says_so(shell: Shell, client: Client) -> None:
    client.admin.create_topic("orders")
    client.simple_consumer("orders", group="g", create_group=True, ordered=True)
    shown = shell.ok("group", "show", "g")
    assert "unlimited deliveries" in shown
    assert "%DLQ%" not in shown
    assert shell.json("group", "show", "g")["max_retries"] is None
    assert shell.json("group", "set", "g", "--max-retries", "5")["max_retries"] == 5
    assert "6 deliveries" in shell.ok("group", "show", "g")


def test_topic_set_unordered(shell: Shell, client: Client) -> None:
    client.admin.create_topic("orders")
    assert (
        shell.json("topic", "set", "orders", "--unordered", "parallel")["unordered"] == "parallel"
    )
    client.simple_consumer("orders", group="g", create_group=True, ordered=True)
    assert "messages without a message group all at once" in shell.ok("status")
    assert "'queue', 'parallel'" in shell.fails(
        "topic", "set", "orders", "--unordered", "no", status=2
    )
