"""The operator's verbs: what they do, their JSON, dry run, confirmation, and the audit record."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rqretry import Client, QueueFull
from rqretry.core.failure_record import describe_cause
from rqretry.core.parts import parts_of
from rqretry.core.receipt import Receipt
from rqretry.protocol.lease import Failure, fail, lease
from rqretry.protocol.maintain import register
from tests.edges.cli.conftest import ROOT
from tests.edges.cli.shell import CLEAN, Shell, dead_letter


def last(shell: Shell) -> dict[str, Any]:
    """The newest entry of the audit record."""
    entry: dict[str, Any] = shell.json("audit", "--count", "1")["entries"][0]
    return entry


def entries(shell: Shell) -> int:
    return len(shell.json("audit")["entries"])


def push_group(client: Client, topic: str, group: str) -> None:
    client.admin.create_topic(topic)
    parts_of(client).store.perform(parts_of(client).catalog.join(group, "push", [topic]))


def fail_all(client: Client, topic: str, group: str) -> None:
    """Lease what is ready, and fail it."""
    keys = parts_of(client).catalog.group_keys(topic, 0, group)
    leased = parts_of(client).store.run(lease(keys, worker="w", want=100, visibility_ms=30_000))
    record = describe_cause("failure", "no such flight")
    failures = [
        Failure(Receipt(id_, lease_no), 0, "", 0.5, "failure", record)
        for id_, (lease_no, _) in zip(leased.ids, leased.numbers, strict=True)
    ]
    parts_of(client).store.run(fail(keys, failures, worker="w", tracebacks={}))


# -- topics ----------------------------------------------------------------------------------


def test_topic_set_limits_what_a_topic_stores(shell: Shell, client: Client) -> None:
    push_group(client, "claims", "g")
    changed = shell.json("topic", "set", "claims", "--max-messages", "2")
    assert changed == {"topic": "claims", "partitions": 1, "groups": ["g"], "max_messages": 2}
    assert last(shell)["verb"] == "set_topic"
    changed = shell.json("topic", "set", "claims", "--max-history-age", "72h")
    assert changed["max_history_age_s"] == 72 * 3600
    shown = shell.ok("topic", "set", "claims", "--keep", "24h", "--keep-bytes", "2000000000")
    assert shown.splitlines()[1:] == ["keep        1 d", "keep_bytes  2000000000"]
    assert shell.ok("topic", "set", "claims", "--keep", "none").endswith("\nkeep  none\n")
    shell.ok("publish", "claims", "-", stdin="1\n2\n")
    assert "claims" in shell.fails("publish", "claims", "--body", "3", status=1)
    with pytest.raises(QueueFull):
        client.publish("claims", 3)
    shown = shell.ok("status")
    assert "2 messages of at most 2" in shown
    assert "topic claims has 100% of the 2 messages it may store" in shown
    assert "2 messages of at most 2" in shell.ok("topic", "show", "claims")
    assert "any number" in shell.ok("topic", "set", "claims", "--max-messages", "0")
    shell.ok("publish", "claims", "--body", "3")


def test_topic_delete_counts_then_deletes(shell: Shell, client: Client) -> None:
    client.publish_many("claims", [1, 2, 3])
    dry = shell.json("topic", "delete", "claims", "--dry-run")
    assert dry == {"topic": "claims", "verb": "delete", "count": 3, "dry_run": True}
    assert client.admin.stats().backlog == 3
    assert "would be deleted with 3 messages" in shell.ok("topic", "delete", "claims", "--dry-run")
    assert entries(shell) == 0
    assert shell.json("topic", "delete", "claims", "--yes")["count"] == 3
    assert client.admin.topics() == []
    assert (last(shell)["verb"], last(shell)["counts"]) == ("delete_topic", {"messages": 3})


def test_topic_delete_with_groups_needs_force(shell: Shell, client: Client) -> None:
    dead_letter(client, "claims", "g", 1)
    assert "g" in shell.fails("topic", "delete", "claims", "--yes", status=2)
    assert shell.json("topic", "delete", "claims", "--yes", "--force")["count"] == 1
    assert client.admin.topics() == []
    assert client.admin.group("g").topics == ()


# -- groups ----------------------------------------------------------------------------------


def test_group_set_pins_and_unpins(shell: Shell, client: Client) -> None:
    push_group(client, "claims", "g")
    pinned = shell.json("group", "set", "g", "--max-retries", "3", "--pin")
    assert (pinned["max_retries"], pinned["pinned"]) == (3, ["max_retries"])
    assert last(shell)["arguments"] == {"group": "g", "max_retries": "3", "pin": True}
    parts_of(client).store.perform(
        parts_of(client).catalog.join("g", "push", ["claims"], max_retries=16)
    )
    assert shell.json("group", "show", "g")["max_retries"] == 3
    assert "pinned" in shell.ok("group", "show", "g")
    assert shell.json("group", "set", "g", "--unpin")["pinned"] == []


def test_pause_and_resume(shell: Shell, client: Client) -> None:
    push_group(client, "claims", "g")
    assert shell.json("group", "pause", "g")["paused"] is True
    assert last(shell)["verb"] == "pause"
    assert shell.json("status")["topics"][0]["groups"][0]["paused"] is True
    assert "group g is paused" in shell.ok("status")
    assert "paused" in shell.ok("group", "show", "g")
    assert shell.json("group", "resume", "g")["paused"] is False
    assert last(shell)["verb"] == "resume"
    assert "paused" not in shell.ok("group", "resume", "g")


def test_promote_makes_waiting_retries_ready(shell: Shell, client: Client) -> None:
    push_group(client, "claims", "g")
    ids = [str(id_) for id_ in client.publish_many("claims", [1, 2, 3])]
    fail_all(client, "claims", "g")
    assert client.admin.stats().waiting == 3
    dry = shell.json("group", "promote", "g", "--dry-run")
    assert dry == {"group": "g", "verb": "promote", "count": 3, "dry_run": True}
    assert shell.json("group", "promote", "g", "--level", "1")["count"] == 0
    assert shell.json("group", "promote", "g", "--error", "nothing")["count"] == 0
    assert shell.json("group", "promote", "g", "--ids", ids[0])["count"] == 1
    assert "2 messages of group g made ready" in shell.ok("group", "promote", "g")
    assert (client.admin.stats().waiting, client.admin.stats().retry) == (0, 3)
    assert (last(shell)["verb"], last(shell)["counts"]) == ("promote", {"messages": 2})


def test_what_is_not_done_becomes_dead_letters_after_a_confirmation(
    shell: Shell, client: Client
) -> None:
    push_group(client, "claims", "g")
    ids = [str(id_) for id_ in client.publish_many("claims", [1, 2, 3])]
    fail_all(client, "claims", "g")
    verb = ("group", "dead-letter", "g")
    assert "which messages?" in shell.fails(*verb, status=2)
    assert "--yes" in shell.fails(*verb, "--all", status=2)
    dry = shell.json(*verb, "--error", "flight", "--dry-run")
    assert dry == {"group": "g", "verb": "dead-letter", "count": 3, "dry_run": True}
    assert client.admin.stats().dead == 0
    done = shell.ok(*verb, "--ids", f"{ids[0]},{ids[2]}", "--reason", "no such plane", "--yes")
    assert "2 messages of group g moved to the dead letters" in done
    assert (client.admin.stats().dead, client.admin.stats().waiting) == (2, 1)
    assert "no such plane" in shell.ok("dlq", "list", "g")
    assert "no such plane" in shell.ok("message", ids[0])
    assert (last(shell)["verb"], last(shell)["counts"]) == ("dead_letter", {"messages": 2})


def test_reset_skips_what_waits(shell: Shell, client: Client) -> None:
    push_group(client, "claims", "g")
    client.publish_many("claims", [1, 2])
    assert "2 messages of group g would be skipped" in shell.ok("group", "reset", "g", "--dry-run")
    assert client.admin.stats().ready == 2
    done = shell.json("group", "reset", "g", "--to", "latest", "--yes")
    assert done == {"group": "g", "verb": "reset", "count": 2, "dry_run": False}
    assert client.admin.stats().topics[0].stored == 0
    assert last(shell)["arguments"] == {"group": "g", "to": "latest"}


def test_reset_to_the_earliest_gives_what_is_still_stored(shell: Shell, client: Client) -> None:
    push_group(client, "claims", "g")
    client.publish_many("claims", [1, 2])
    push_group(client, "claims", "h")
    request_parts = ("group", "reset", "h", "--to", "earliest")
    assert "2 messages of group h would be delivered again" in shell.ok(*request_parts, "--dry-run")
    assert client.admin.stats(group="h").ready == 0
    assert "2 messages of group h delivered again" in shell.ok(*request_parts, "--yes")
    assert shell.json(*request_parts, "--yes")["count"] == 0
    assert client.admin.stats(group="h").ready == 2
    assert last(shell)["arguments"] == {"group": "h", "to": "earliest"}


def test_receive_can_start_a_new_group_with_what_is_still_stored(
    shell: Shell, client: Client
) -> None:
    push_group(client, "claims", "g")
    client.publish_many("claims", [1, 2])
    request_parts = ("receive", "claims", "--create-group", "--wait", "0", "--start")
    assert shell.json(*request_parts, "latest", "--group", "late")["messages"] == []
    found = shell.json(*request_parts, "earliest", "--group", "all")["messages"]
    assert [(message["body"], message["attempt"]) for message in found] == [(1, 1), (2, 1)]


def test_group_purge_deletes_messages_in_one_state(shell: Shell, client: Client) -> None:
    push_group(client, "claims", "g")
    client.publish_many("claims", [1, 2])
    fail_all(client, "claims", "g")
    (new, other) = client.publish_many("claims", [3, 4])
    request_parts = ("group", "purge", "g", "--state")
    dry = shell.json(*request_parts, "ready", "--all", "--dry-run")
    assert dry == {"group": "g", "verb": "purge", "count": 2, "dry_run": True}
    assert shell.json(*request_parts, "ready", "--topic", "nothing", "--yes")["count"] == 0
    out = shell.ok(*request_parts, "ready", "--ids", new, "--yes")
    assert out == "1 message of group g deleted\n"
    assert last(shell)["arguments"] == {"group": "g", "state": "ready", "ids": [new]}
    assert shell.json(*request_parts, "waiting_retry", "--all", "--yes")["count"] == 2
    stats = client.admin.stats()
    assert (stats.ready, stats.waiting, stats.topics[0].stored) == (1, 0, 1)
    assert client.admin.message(other).states[0].state == "ready"


def test_unsubscribe_gives_up_what_is_left(shell: Shell, client: Client) -> None:
    push_group(client, "claims", "g")
    client.publish("claims", 1)
    assert shell.json("group", "unsubscribe", "g", "claims", "--dry-run")["count"] == 1
    assert client.admin.group("g").topics == ("claims",)
    done = shell.json("group", "unsubscribe", "g", "claims", "--yes")
    assert done == {"group": "g", "verb": "unsubscribe", "count": 1, "dry_run": False}
    assert client.admin.group("g").topics == ()
    assert last(shell)["verb"] == "unsubscribe"


def test_group_delete_forgets_the_group_and_its_dead_letters(shell: Shell, client: Client) -> None:
    dead_letter(client, "claims", "g", 1, 2)
    assert shell.json("group", "delete", "g", "--dry-run")["count"] == 2
    assert client.admin.stats().dead == 2
    out = shell.ok("group", "delete", "g", "--yes")
    assert "2 messages of group g dropped" in out
    assert client.admin.groups() == []
    assert client.admin.stats().topics[0].stored == 0
    assert last(shell)["verb"] == "delete_group"


DESTROYING = [
    ["topic", "delete", "claims", "--force"],
    ["group", "reset", "g"],
    ["group", "purge", "g", "--state", "dead", "--all"],
    ["group", "unsubscribe", "g", "claims"],
    ["group", "delete", "g"],
    ["dlq", "purge", "g", "--all"],
]


@pytest.mark.parametrize("request_parts", DESTROYING, ids=" ".join)
@pytest.mark.parametrize(("answer", "status"), [("y", 0), ("n", 1)])
def test_what_destroys_asks_on_a_terminal_and_does_nothing_after_a_no(
    shell: Shell, client: Client, request_parts: list[str], answer: str, status: int
) -> None:
    dead_letter(client, "claims", "g", 1, 2)
    client.publish("claims", 3)
    before = entries(shell)
    assert at_terminal(shell, request_parts, answer) == status
    stored = sum(topic.stored for topic in client.admin.stats().topics)
    assert (stored == 3) == (answer == "n")
    assert (entries(shell) == before) == (answer == "n")


@pytest.mark.parametrize("request_parts", DESTROYING, ids=" ".join)
def test_what_destroys_needs_yes_off_a_terminal(
    shell: Shell, client: Client, request_parts: list[str]
) -> None:
    dead_letter(client, "claims", "g", 1)
    assert "give --yes or --dry-run" in shell.fails(*request_parts, status=2)
    assert client.admin.stats().dead == 1


def at_terminal(shell: Shell, request_parts: list[str], answer: str) -> int:
    """The exit status of a program whose input is a terminal at which this is typed."""
    ours, theirs = pty.openpty()
    known = {name: value for name, value in os.environ.items() if name not in CLEAN}
    environment = {**known, "RQRETRY_REDIS_URL": shell.url, "PYTHONPATH": str(ROOT)}
    os.write(ours, f"{answer}\n".encode())
    try:
        done = subprocess.run(
            [sys.executable, "-m", "rqretry", *request_parts],
            env=environment, stdin=theirs, capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
    finally:
        os.close(ours)
        os.close(theirs)
    assert "[y/N]" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    return done.returncode


def test_a_group_with_a_live_worker_is_deleted_with_force_only(
    shell: Shell, client: Client
) -> None:
    push_group(client, "claims", "g")
    live(client, "g", "claims")
    assert "alive" in shell.fails("group", "delete", "g", "--yes", status=1)
    assert "alive" in shell.fails("group", "unsubscribe", "g", "claims", "--yes", status=1)
    shell.ok("group", "delete", "g", "--yes", "--force")
    assert client.admin.groups() == []


# -- dead letters ----------------------------------------------------------------------------


def test_redrive_with_a_rate_spaces_the_due_times(shell: Shell, client: Client) -> None:
    dead_letter(client, "claims", "g", *range(5))
    out = shell.ok("dlq", "redrive", "g", "--all", "--rate", "1/m", "--yes")
    assert "5 dead letters of group g sent back" in out
    assert "the last one is due in 4 m" in out
    stats = client.admin.stats()
    assert (stats.dead, stats.ready + stats.retry, stats.waiting) == (0, 1, 4)
    entry = last(shell)
    assert (entry["verb"], entry["counts"]) == ("redrive", {"sent": 5})
    assert entry["arguments"] == {"group": "g", "rate": "1/m", "all": True}


def test_canaries_that_are_not_done_in_time_stop_a_redrive(shell: Shell, client: Client) -> None:
    dead_letter(client, "claims", "g", 1, 2, 3)
    request_parts = ("--all", "--canary", "1", "--canary-timeout", "300ms", "--yes", "--json")
    result = shell("dlq", "redrive", "g", *request_parts)
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert (answer["count"], answer["matched"], answer["canaries"]) == (1, 3, 1)
    assert answer["stopped"] is True
    assert "not done in time" in answer["reason"]
    assert "waiting at most 300 ms for 1 canary" in result.stderr
    assert client.admin.stats().dead == 2


def test_export_writes_a_line_for_each_dead_letter(
    shell: Shell, client: Client, tmp_path: Path
) -> None:
    ids = dead_letter(client, "claims", "g", {"n": 1}, b"\x00\xff")
    rows = [json.loads(line) for line in shell.ok("dlq", "export", "g").splitlines()]
    assert {row["id"] for row in rows} == set(ids)
    assert {row["schema"] for row in rows} == {1}
    by_id = {row["id"]: row for row in rows}
    assert by_id[ids[0]]["body"] == {"n": 1}
    assert by_id[ids[1]]["body_base64"] == "AP8="
    file = tmp_path / "dead.jsonl"
    answer = shell.json("dlq", "export", "g", "--ids", ids[0], "--file", str(file))
    assert answer == {"group": "g", "verb": "export", "count": 1, "file": str(file)}
    assert json.loads(file.read_text())["id"] == ids[0]
    assert "there already" in shell.fails("dlq", "export", "g", "--file", str(file), status=1)
    assert json.loads(file.read_text())["id"] == ids[0]
    assert client.admin.stats().dead == 2


# -- one message, workers, leases ------------------------------------------------------------


def test_recall_cancels_what_is_not_due(shell: Shell, client: Client) -> None:
    push_group(client, "claims", "g")
    late = client.publish("claims", 1, delay="1h")
    assert shell.json("recall", late) == {"id": late, "recalled": True}
    assert client.admin.stats().scheduled == 0
    now = client.publish("claims", 2)
    result = shell("recall", now, "--topic", "claims", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {"schema": 1, "id": now, "recalled": False}
    assert "too late" in shell("recall", now).stdout
    assert "committed" in shell.fails("recall", late, status=1)


def live(client: Client, group: str, topic: str) -> None:
    """A worker process, as the roster knows it."""
    about = json.dumps({"groups": [group], "topics": [topic], "pid": 7})
    keys = parts_of(client).catalog.keys
    parts_of(client).store.run(register(keys, worker="host:7:1", about=about, ttl_ms=60_000))


def test_workers_lists_the_live_ones(shell: Shell, client: Client) -> None:
    assert "no live workers" in shell("workers").stderr
    push_group(client, "claims", "g")
    live(client, "g", "claims")
    (worker,) = shell.json("workers")["workers"]
    assert worker.pop("since_ms") > 0
    assert worker == {
        "name": "host:7:1", "host": "host", "pid": 7, "version": "", "service": "",
        "groups": ["g"], "topics": ["claims"],
        "slots": 0, "busy": 0, "failures": 0, "restarts": 0, "blocked_s": 0,
    }  # fmt: skip
    assert "host:7:1" in shell.ok("workers")


def test_inflight_lists_the_leases(shell: Shell, client: Client) -> None:
    client.admin.create_topic("claims")
    consumer = client.simple_consumer("claims", group="g", create_group=True)
    assert "nothing in flight" in shell("inflight", "g").stderr
    id_ = client.publish("claims", 1)
    consumer.receive(1, invisible_duration=60, wait=1)
    answer = shell.json("inflight", "g")
    assert answer["group"] == "g"
    (message,) = answer["messages"]
    assert message.pop("deadline_ms") > message.pop("since_ms") > 0
    assert message == {
        "id": id_, "topic": "claims", "partition": 0, "attempt": 1,
        "holder": client.admin.message(id_).timeline[-1].worker,
    }  # fmt: skip
    assert id_ in shell.ok("inflight", "g")


def test_the_audit_record_says_who_did_what(shell: Shell, client: Client) -> None:
    assert "no audit record" in shell("audit").stderr
    push_group(client, "claims", "g")
    shell.ok("group", "pause", "g")
    shell.ok("group", "resume", "g")
    answer = shell.json("audit")
    assert [entry["verb"] for entry in answer["entries"]] == ["resume", "pause"]
    assert set(answer["entries"][0]) == {"at_ms", "actor", "verb", "arguments", "counts"}
    assert f":{os.getpid()}:" in answer["entries"][0]["actor"]
    assert "group=g" in shell.ok("audit", "--count", "1")
    shell.ok(
        "group", "set", "g", "--max-retries", "unlimited", "--max-inflight", "none",
        "--rate-limit", "none", "--dlq-retention", "none",
    )  # fmt: skip
    shown = shell.ok("audit", "--count", "1")
    assert "max_retries=unlimited max_inflight=none rate_limit=none dlq_retention_ms=none" in shown


# -- status ----------------------------------------------------------------------------------


def test_status_names_what_nobody_serves_and_what_it_takes(shell: Shell, client: Client) -> None:
    push_group(client, "claims", "g")
    client.publish("claims", "x" * 5000)
    client.publish("lonely", 1)
    out = shell.ok("status")
    assert "group g of topic claims has 1 message ready and no live worker" in out
    assert "topic lonely has no consumer group: 1 message waiting for one" in out
    assert "topic claims stores 1 message, 5." in out
    assert "(maxmemory is not set); these topics: history" in out
    live(client, "g", "claims")
    assert "no live worker" not in shell.ok("status")
    assert shell.json("topic", "show", "claims")["bytes"] > 5000
