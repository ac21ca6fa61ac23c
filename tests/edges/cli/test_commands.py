"""Every command's ordinary use, with the JSON that other programs read."""

import base64
import json
from typing import Any

import pytest

from rqretry import Client
from rqretry.cli.main import COMMANDS
from rqretry.core.parts import parts_of
from rqretry.protocol.command import Command
from rqretry.version import __version__
from tests.edges.cli.shell import Shell, dead_letter


def test_version_is_printed(shell: Shell) -> None:
    assert shell.ok("--version") == f"rqretry {__version__}\n"


@pytest.mark.parametrize(
    "request_parts",
    [
        [], ["worker"], ["publish"], ["receive"], ["status"], ["message"], ["topic"],
        ["topic", "create"], ["topic", "list"], ["topic", "show"], ["group"], ["group", "list"],
        ["group", "show"], ["group", "set"], ["dlq"], ["dlq", "list"], ["dlq", "show"],
        ["dlq", "redrive"], ["dlq", "purge"], ["doctor"], ["fsck"], ["dev"], ["recall"],
        ["topic", "set"], ["topic", "delete"], ["group", "pause"], ["group", "resume"],
        ["group", "promote"], ["group", "purge"], ["group", "reset"], ["group", "unsubscribe"],
        ["group", "delete"],
        ["dlq", "export"], ["workers"], ["inflight"], ["audit"], ["reaper"], ["exporter"],
        ["dashboard"],
    ],
)  # fmt: skip
def test_every_command_has_help_with_an_example(shell: Shell, request_parts: list[str]) -> None:
    text = shell.ok(*request_parts, "--help")
    assert "Example" in text
    assert "--url" in text
    assert "--namespace" in text


def test_the_help_lists_each_command_once_in_four_groups_each_summary_whole(shell: Shell) -> None:
    text = shell.ok("--help").split("Show this message and exit.")[1].rpartition("Example:")[0]
    sections = text.strip().split("\n\n")
    assert [section.splitlines()[0] for section in sections] == [
        "Run:",
        "Send:",
        "Look:",
        "Manage:",
    ]
    rows = [row for section in sections for row in section.splitlines()[1:]]
    assert sorted(row.split()[0] for row in rows) == sorted(COMMANDS)
    for row in rows:
        assert len(row) <= 80
        assert row.endswith(".")
        assert not row.endswith("..."), row


@pytest.mark.parametrize("group", ["topic", "group", "dlq", "transaction", "pipeline"])
def test_the_summaries_of_a_group_of_commands_are_whole(shell: Shell, group: str) -> None:
    text = shell.ok(group, "--help").split("Commands:")[1].rpartition("Example:")[0]
    rows = text.strip().splitlines()
    assert rows
    assert [row for row in rows if not row.endswith(".") or row.endswith("...")] == []


def test_publish_prints_the_id_and_receive_prints_the_message(shell: Shell) -> None:
    shell.ok("topic", "create", "claims")
    id_ = shell.ok(
        "publish", "claims", "--body", '{"flight": 1}', "--tag", "late", "--key", "AA1", "--key",
        "AA2", "--header", "source=test",
    ).strip()  # fmt: skip
    answer = shell.json("receive", "claims", "--group", "g", "--create-group", "--wait", "1s")
    (message,) = answer["messages"]
    assert message["id"] == id_
    assert message["topic"] == "claims"
    assert message["body"] == {"flight": 1}
    assert message["attempt"] == 1
    assert message["tag"] == "late"
    assert message["keys"] == ["AA1", "AA2"]
    assert message["headers"] == {"source": "test"}
    assert message["receipt_handle"].endswith(id_)


def test_a_message_received_without_ack_comes_back_as_attempt_2(shell: Shell) -> None:
    shell.ok("publish", "claims", "--body", "1")
    request_parts = ("receive", "claims", "--group", "g", "--create-group", "--invisible", "50ms")
    assert shell.json(*request_parts)["messages"][0]["attempt"] == 1
    again = shell.json(*request_parts, "--wait", "2s", "--ack")["messages"]
    assert [message["attempt"] for message in again] == [2]
    assert shell.json(*request_parts, "--wait", "200ms")["messages"] == []


def test_receive_with_ack_commits(shell: Shell, client: Client) -> None:
    shell.ok("publish", "claims", "--body", "1")
    out = shell.ok("receive", "claims", "--group", "g", "--create-group", "--ack", "--max", "1")
    assert "body       1" in out
    assert client.admin.stats().topics[0].stored == 0


def test_receive_says_on_standard_error_that_nothing_came(shell: Shell) -> None:
    shell.ok("topic", "create", "claims")
    result = shell("receive", "claims", "--group", "g", "--create-group", "--wait", "10ms")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "no message came within 10 ms" in result.stderr


def test_receive_says_that_its_group_is_paused(shell: Shell) -> None:
    shell.ok("topic", "create", "claims")
    shell("receive", "claims", "--group", "g", "--create-group", "--wait", "10ms")
    shell.ok("group", "pause", "g")
    result = shell("receive", "claims", "--group", "g", "--wait", "10ms")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no message came within 10 ms: group g is paused" in result.stderr


def test_raw_bytes_are_published_as_they_are_and_shown_as_base64(shell: Shell) -> None:
    data = b"\x00\xff not text"
    shell.ok("publish", "claims", "-", "--raw", stdin=data)
    answer = shell.json("receive", "claims", "--group", "g", "--create-group", "--wait", "1s")
    (message,) = answer["messages"]
    assert message["encoding"] == "base64"
    assert base64.b64decode(message["body"]) == data


def test_a_raw_body_on_the_command_line_is_its_text(shell: Shell) -> None:
    shell.ok("publish", "claims", "--raw", "--body", "plain text")
    out = shell.ok("receive", "claims", "--group", "g", "--create-group", "--wait", "1s")
    assert base64.b64encode(b"plain text").decode() in out


def test_publish_with_json_prints_the_ids_of_all_lines(shell: Shell, client: Client) -> None:
    lines = "".join(f'{{"n": {n}}}\n' for n in range(7)) + "\n"
    answer = shell.json("publish", "claims", "-", stdin=lines)
    assert len(set(answer["ids"])) == 7
    assert client.admin.stats().backlog == 7


def test_publish_reads_a_file_with_one_body_per_line(
    shell: Shell, client: Client, tmp_path: Any
) -> None:
    file = tmp_path / "claims.jsonl"
    file.write_text("1\n2\n\n3\n")
    out = shell.ok("publish", "claims", "--file", str(file), "--tag", "t")
    assert len(out.split()) == 3
    client.simple_consumer("claims", group="g", create_group=True)
    bodies = [m.body for m in client.simple_consumer("claims", group="g").receive(wait=1)]
    assert bodies == [1, 2, 3]


def test_the_same_id_published_again_is_stored_once_and_reported(
    shell: Shell, client: Client
) -> None:
    request_parts = ("publish", "claims", "--body", "1", "--id", "mine")
    assert shell.ok(*request_parts) == "mine\n"
    again = shell(*request_parts)
    assert again.exit_code == 0
    assert "stored once" in again.stderr
    assert client.admin.stats().backlog == 1


def test_a_delayed_message_is_not_ready(shell: Shell, client: Client) -> None:
    shell.ok("publish", "claims", "--body", "1", "--delay", "1h")
    shell.ok("publish", "claims", "--body", "1", "--delay-level", "18")
    assert client.admin.stats().scheduled == 2
    assert "2 delayed messages" in shell.ok("status")


def test_status_has_exactly_the_fields_of_the_contract(shell: Shell, client: Client) -> None:
    client.admin.create_topic("claims", 2)
    client.simple_consumer("claims", group="g", create_group=True)
    client.publish("claims", 1)
    answer = shell.json("status")
    assert set(answer) == {"namespace", "topics"}
    assert answer["namespace"] == "default"
    (topic,) = answer["topics"]
    assert set(topic) == {"topic", "partitions", "groups"}
    assert (topic["topic"], topic["partitions"]) == ("claims", 2)
    (group,) = topic["groups"]
    assert group.pop("oldest_ages_s") == {"ready": group["oldest_age_s"]}
    assert group.pop("oldest_age_s") < 60
    assert group == {
        "group": "g", "kind": "simple", "ready": 1, "retry": 0, "inflight": 0, "waiting": [],
        "dead": 0, "paused": False, "workers": 0,
    }  # fmt: skip
    assert [topic["topic"] for topic in shell.json("status", "claims")["topics"]] == ["claims"]


def test_status_for_people_names_what_waits_without_a_group(shell: Shell) -> None:
    shell.ok("publish", "claims", "--body", "1")
    assert "no consumer group: 1 message waiting for one" in shell.ok("status")


def test_message_has_exactly_the_fields_of_the_contract(shell: Shell, client: Client) -> None:
    client.admin.create_topic("claims")
    client.simple_consumer("claims", group="g", create_group=True)
    id_ = client.publish("claims", 1)
    answer = shell.json("message", id_)
    assert set(answer) == {"id", "topic", "states", "timeline"}
    assert (answer["id"], answer["topic"]) == (id_, "claims")
    (state,) = answer["states"]
    assert set(state) == {"group", "state", "attempt", "due_ms", "explain"}
    assert (state["group"], state["state"], state["attempt"]) == ("g", "ready", 1)
    assert answer["timeline"][0]["event"] == "publish"
    assert "ready" in shell.ok("message", id_)


def test_topics_are_created_listed_and_shown(shell: Shell) -> None:
    made = {"topic": "claims", "partitions": 4, "groups": [], "max_messages": None}
    assert shell.json("topic", "create", "claims", "--partitions", "4") == made
    assert shell.json("topic", "create", "claims") == made
    assert shell.json("topic", "list") == {"namespace": "default", "topics": [made]}
    shown = shell.json("topic", "show", "claims")
    assert shown.pop("bytes") is not None
    numbers = {"stored": 0, "scheduled": 0, "backlog": 0, "history_bytes": 0}
    assert shown == {**made, **numbers}
    assert "4 partitions" in shell.ok("topic", "show", "claims")
    assert "claims" in shell.ok("topic", "list")


def test_groups_are_listed_shown_and_set(shell: Shell, client: Client) -> None:
    client.admin.create_topic("claims")
    client.simple_consumer("claims", group="g", create_group=True)
    (listed,) = shell.json("group", "list")["groups"]
    assert (listed["group"], listed["kind"], listed["max_retries"]) == ("g", "simple", 16)
    changed = shell.json("group", "set", "g", "--max-retries", "3", "--policy", "ladder:10s 30s")
    assert (changed["max_retries"], changed["policy"]) == (3, "ladder:10s 30s")
    assert shell.json("group", "show", "g") == changed
    assert shell.json("group", "set", "g", "--max-retries", "unlimited")["max_retries"] is None
    assert client.admin.group("g").policy == "ladder:10s 30s"
    shown = shell.ok("group", "show", "g")
    assert "unlimited deliveries" in shown
    assert "%DLQ%g" not in shown  # where no retry ever ends
    assert "g" in shell.ok("group", "list")


def test_dlq_list_groups_by_fingerprint(shell: Shell, client: Client) -> None:
    ids = dead_letter(client, "claims", "g", 1, 2, 3)
    answer = shell.json("dlq", "list", "g")
    assert answer["group"] == "g"
    (cluster,) = answer["clusters"]
    assert set(cluster) == {"fingerprint", "error", "count", "first", "last", "sample_id"}
    assert cluster["count"] == 3
    assert cluster["sample_id"] in ids
    assert cluster["fingerprint"] in shell.ok("dlq", "list", "g")


def test_dlq_list_by_message_names_each(shell: Shell, client: Client) -> None:
    ids = dead_letter(client, "claims", "g", 1, 2)
    answer = shell.json("dlq", "list", "%DLQ%g", "--by", "message")
    assert {message["id"] for message in answer["messages"]} == set(ids)
    assert set(answer["messages"][0]) == {"id", "topic", "attempt", "cause", "error"}
    assert answer["messages"][0]["cause"] == "expired"
    assert ids[0] in shell.ok("dlq", "list", "g", "--by", "message")


def test_dlq_show_has_body_and_errors(shell: Shell, client: Client) -> None:
    (id_,) = dead_letter(client, "claims", "g", {"flight": 1})
    answer = shell.json("dlq", "show", "g", id_)
    assert answer["body"] == {"flight": 1}
    assert (answer["cause"], answer["attempt"]) == ("expired", 1)
    assert [error["attempt"] for error in answer["errors"]] == [1]
    assert '{"flight": 1}' in shell.ok("dlq", "show", "%DLQ%g", id_)


def test_a_dry_run_moves_nothing(shell: Shell, client: Client) -> None:
    dead_letter(client, "claims", "g", 1, 2)
    assert shell.json("dlq", "redrive", "g", "--all", "--dry-run")["count"] == 2
    assert "2 dead letters of group g would be deleted" in shell.ok(
        "dlq", "purge", "g", "--all", "--dry-run"
    )
    assert client.admin.stats().dead == 2


def test_redrive_sends_back_what_was_chosen(shell: Shell, client: Client) -> None:
    first, second, third = dead_letter(client, "claims", "g", 1, 2, 3)
    answer = shell.json("dlq", "redrive", "g", "--ids", f"{first},{second}", "--yes")
    assert answer == {
        "group": "g", "verb": "redrive", "count": 2, "dry_run": False, "matched": 2, "canaries": 0,
        "failed": 0, "stopped": False, "reason": "",
    }  # fmt: skip
    assert [dead_record.id for dead_record in client.admin.dead_letters("g")] == [third]
    received = shell.json("receive", "claims", "--group", "g", "--ack")["messages"]
    assert {message["id"]: message["attempt"] for message in received} == {first: 1, second: 1}


@pytest.mark.parametrize(
    ("chosen", "count"),
    [
        (["--all"], 2),
        (["--topic", "claims"], 2),
        (["--topic", "other"], 0),
        (["--since", "1h"], 2),
        (["--before", "1h"], 0),
        (["--since", "2001-01-01T00:00:00Z"], 2),
        (["--before", "2001-01-01T00:00:00+02:00"], 0),
        (["--fingerprint", "0000000000000000"], 0),
        (["--error", "expired"], 2),
    ],
)
def test_purge_deletes_what_was_chosen(
    shell: Shell, client: Client, chosen: list[str], count: int
) -> None:
    dead_letter(client, "claims", "g", 1, 2)
    assert shell.json("dlq", "purge", "g", *chosen, "--yes")["count"] == count
    assert client.admin.stats().dead == 2 - count


def test_doctor_lists_its_findings(shell: Shell) -> None:
    answer = shell.json("doctor")
    assert {finding["check"] for finding in answer["findings"]} == {
        "version", "role", "eviction", "maxmemory", "persistence", "cluster", "clock", "latency",
        "rights", "upkeep", "versions",
    }  # fmt: skip
    assert all(
        set(finding) == {"check", "severity", "sentence", "fix"} for finding in answer["findings"]
    )
    assert "noeviction" in shell.ok("doctor")


def test_fsck_of_a_sound_namespace_finds_nothing(shell: Shell, client: Client) -> None:
    dead_letter(client, "claims", "g", 1)
    client.publish("claims", 2)
    answer = shell.json("fsck")
    assert answer == {"namespace": "default", "partitions": 1, "findings": []}
    assert "0 errors" in shell.ok("fsck")


def test_fsck_fails_where_a_body_is_missing(shell: Shell, client: Client) -> None:
    client.admin.create_topic("claims")
    client.simple_consumer("claims", group="g", create_group=True)
    id_ = client.publish("claims", 2)
    keys = parts_of(client).catalog.partition("claims", 0)
    parts_of(client).store.run(Command("hdel", (), (), int, arguments=("HDEL", keys.bodies, id_)))
    result = shell("fsck", "--json")
    assert result.exit_code == 1
    (finding,) = json.loads(result.stdout)["findings"]
    assert (finding["severity"], finding["id"]) == ("error", id_)


def test_url_and_namespace_are_taken_before_and_after_the_command(shell: Shell) -> None:
    url = shell.url
    before = ["--url", url, "--namespace", "one", "topic", "create", "claims"]
    result = Shell("redis://localhost:1")(*before)
    assert result.exit_code == 0, result.output
    after = ["topic", "list", "--json", "--url", url, "--namespace", "one"]
    assert '"topic": "claims"' in Shell("redis://localhost:1")(*after).stdout
    between = ["topic", "--url", url, "list", "--json", "--namespace", "one"]
    assert '"topic": "claims"' in Shell("redis://localhost:1")(*between).stdout


def test_the_namespace_of_the_environment_is_used(shell: Shell) -> None:
    shell("topic", "create", "claims", RQRETRY_NAMESPACE="two")
    assert shell.json("topic", "list")["topics"] == []
    assert "claims" in shell("topic", "list", RQRETRY_NAMESPACE="two").stdout


@pytest.mark.parametrize(
    "request_parts",
    [["status"], ["topic", "list"], ["group", "list"], ["fsck"], ["workers"], ["audit"]],
)
def test_an_empty_answer_names_the_other_namespaces(shell: Shell, request_parts: list[str]) -> None:
    shell.ok("--namespace", "somewhere", "topic", "create", "claims")
    result = shell(*request_parts)
    assert result.exit_code == 0
    assert "somewhere" in result.stderr
    assert "somewhere" not in result.stdout


@pytest.mark.parametrize(
    "request_parts",
    [
        ["status", "nope"], ["topic", "show", "nope"], ["group", "show", "nope"],
        ["group", "set", "nope", "--max-retries", "1"], ["dlq", "list", "nope"],
        ["message", "nope"], ["receive", "nope", "--group", "g", "--wait", "0"],
        ["topic", "set", "nope", "--max-messages", "1"], ["topic", "delete", "nope", "--yes"],
        ["group", "pause", "nope"], ["group", "resume", "nope"], ["group", "promote", "nope"],
        ["group", "reset", "nope", "--yes"], ["group", "delete", "nope", "--yes"],
        ["group", "unsubscribe", "nope", "t", "--yes"], ["dlq", "export", "nope"],
        ["group", "purge", "nope", "--state", "ready", "--all", "--yes"],
        ["dlq", "redrive", "nope", "--all"], ["inflight", "nope"], ["recall", "nope"],
    ],
)  # fmt: skip
def test_an_unknown_name_is_an_error_that_names_the_other_namespaces(
    shell: Shell, request_parts: list[str]
) -> None:
    shell.ok("--namespace", "somewhere", "topic", "create", "claims")
    assert "somewhere" in shell.fails(*request_parts, status=1)
