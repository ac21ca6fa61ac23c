"""Text of others as commands print it: nothing that a terminal acts upon, and JSON as it was."""

import json
from pathlib import Path

from rqretry import Client
from tests.edges.cli.shell import Shell, dead_letter

HOSTILE = "\x1b[31m\x9b\x7f\u2028\u2029\u202eexe.gpj\u2066\U000e0001 Zürich"


def test_no_command_prints_what_a_terminal_would_act_upon(
    shell: Shell, client: Client, tmp_path: Path
) -> None:
    (id_,) = dead_letter(client, "t", "g", {HOSTILE: HOSTILE})
    for _ in range(2):
        client.publish("u", HOSTILE, headers={"h": HOSTILE})
    file = tmp_path / "export.jsonl"
    shell.ok("dlq", "export", "g", "--file", str(file))
    for request_parts in (["dlq", "show", "g", id_], ["message", id_], ["dlq", "list", "g"],
                  ["receive", "u", "--group", "h", "--create-group", "--max", "1"]):  # fmt: skip
        assert_printable(shell.ok(*request_parts))
        assert_printable(shell.ok(*request_parts, "--json"))
    for text in (shell.ok("dlq", "export", "g"), file.read_text("utf-8")):
        assert_printable(text)
        assert "Zürich" in text
        assert json.loads(text)["body"] == {HOSTILE: HOSTILE}


def assert_printable(text: str) -> None:
    """Lines end with a newline, and hold nothing that is not shown."""
    assert text.endswith("\n")
    assert all(line.isprintable() for line in text.split("\n")), ascii(text)
