"""Progress of long work: counted from the answers, shown on a terminal and nowhere else."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rqretry import Client, DeadLetterFilter
from rqretry.cli.dead_letter_export import exported
from rqretry.cli.progress import tasks_done, watched
from rqretry.protocol.command import Command, Operation, Pause
from rqretry.protocol.operate import PurgeCount
from tests.edges.cli.shell import CLEAN, Shell, dead_letter

ROOT = Path(__file__).parents[3]


def call(verb: str) -> Command[Any]:
    return Command(verb, (), (), lambda reply: reply)


def test_messages_are_counted_as_the_answers_pass() -> None:
    def working() -> Operation[str]:
        assert (yield call("purge")) == [b"OK", b"GONE", b"OK"]
        assert (yield [call("redrive"), call("scan_group")]) == [[b"OK"], "page"]
        yield Pause(1)
        with pytest.raises(KeyError):
            yield call("purge_list")
        return "done"

    counts: list[int] = []
    answers: Iterator[Any] = iter([[b"OK", b"GONE", b"OK"], [[b"OK"], "page"], None])
    operation = watched(working(), counts.append)
    next(operation)
    for answer in answers:
        operation.send(answer)
    with pytest.raises(StopIteration) as end:
        operation.throw(KeyError("lost"))
    assert (end.value.value, counts) == ("done", [2, 1, 0])


def test_a_drop_counts_what_is_gone() -> None:
    counts: list[int] = []

    def working() -> Operation[None]:
        yield call("purge_list")

    operation = watched(working(), counts.append)
    next(operation)
    with pytest.raises(StopIteration):
        operation.send(PurgeCount(3, 7))
    assert counts == [3]


def test_the_tasks_of_a_spark_job_are_shown_with_how_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = StringIO()
    screen = Console(file=shown, force_terminal=True, width=80)
    monkeypatch.setattr("rqretry.cli.progress.terminal", lambda **_: screen)
    with tasks_done() as report:
        report(3, 8)
    assert "3/8" in shown.getvalue()


def test_an_export_reads_page_by_page_in_the_order_of_death(client: Client) -> None:
    client.admin.create_topic("claims", partitions=2)
    ids = dead_letter(client, "claims", "g", *range(1100))
    pages: list[int] = []
    rows = exported(client, "g", DeadLetterFilter(all=True), pages.append)
    first = next(rows)
    assert pages == []  # one page of each partition is in memory, and none is used up
    rest = list(rows)
    assert sum(pages) == 1100
    assert len(pages) >= 3
    assert sorted(row["id"] for row in [first, *rest]) == sorted(ids)
    assert rest == sorted(rest, key=lambda row: (row["dead_since_ms"], row["id"]))


def test_a_long_list_of_messages_is_printed_page_by_page(client: Client, shell: Shell) -> None:
    ids = dead_letter(client, "claims", "g", *range(1100))
    listed = shell.ok("dlq", "list", "g", "--by", "message", "--json")
    assert listed.count("\n") == 1
    assert sorted(row["id"] for row in json.loads(listed)["messages"]) == sorted(ids)
    assert shell.ok("dlq", "list", "g", "--by", "message").count("dead since") == 3  # headings


@pytest.mark.parametrize("seen", [True, False], ids=["terminal", "piped"])
@pytest.mark.parametrize(
    ("request_parts", "text"),
    [
        (["dlq", "export", "g"], "exporting g"),
        (["dlq", "purge", "g", "--all", "--yes"], "deleting dead letters of g"),
        (["dlq", "redrive", "g", "--all", "--yes"], "redriving g"),
        (["group", "delete", "g", "--yes"], "deleting group g"),
        (["group", "reset", "g", "--yes"], "resetting g"),
    ],
    ids=lambda value: "" if isinstance(value, str) else " ".join(value),
)
def test_long_work_shows_a_bar_on_a_terminal_only(
    shell: Shell, client: Client, request_parts: list[str], text: str, seen: bool
) -> None:
    dead_letter(client, "claims", "g", 1, 2)
    status, errors = with_errors_at(shell, request_parts, terminal=seen)
    assert status == 0
    assert (text in errors) == seen
    assert seen or not errors.count("\x1b")


def with_errors_at(shell: Shell, request_parts: list[str], *, terminal: bool) -> tuple[int, str]:
    """Exit status, and what a program writes to standard error."""
    known = {name: value for name, value in os.environ.items() if name not in CLEAN}
    environment = known | {"RQRETRY_REDIS_URL": shell.url, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    command = [sys.executable, "-m", "rqretry", *request_parts]
    ours, theirs = pty.openpty() if terminal else os.pipe()
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs
    ) as process:
        os.close(theirs)
        process.communicate(timeout=60)
    parts = []
    with os.fdopen(ours, "rb", buffering=0) as stream:
        while True:
            try:
                part = stream.read(4096)
            except OSError:  # a terminal whose other end is closed
                break
            if not part:
                break
            parts.append(part)
    return process.returncode, b"".join(parts).decode()
