"""`status --watch` on a terminal: redrawn in place, cut where it is too long, and put back."""

import fcntl
import io
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rqretry import Client
from rqretry.admin.views import GroupStats, Stats, TopicStats, Waiting
from rqretry.cli import live_screen
from rqretry.cli.status_watch import worst_first
from tests.edges.cli.shell import CLEAN, Shell

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("ending", ["q", "SIGINT"])
def test_status_watch_redraws_in_place_and_leaves_the_terminal_as_it_was(
    shell: Shell, client: Client, ending: str
) -> None:
    client.admin.create_topic("claims")
    client.simple_consumer("claims", group="g", create_group=True)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))
    known = {name: value for name, value in os.environ.items() if name not in CLEAN}
    environment = known | {"RQRETRY_REDIS_URL": shell.url, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    command = [sys.executable, "-m", "rqretry", "status", "--watch"]
    stated = b""
    with subprocess.Popen(
        command, env=environment, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE
    ) as watch:
        os.close(theirs)
        try:
            while b"succeed 0.0/s" not in stated:
                stated += os.read(ours, 4096)
            if ending == "q":
                os.write(ours, b"q")
            else:
                watch.send_signal(signal.SIGINT)
            with suppress(OSError):  # a terminal whose other end is closed
                while part := os.read(ours, 4096):
                    stated += part
            assert watch.wait(30) == 0
        finally:
            watch.kill()
        assert watch.stderr is not None and watch.stderr.read() == b""
    os.close(ours)
    assert b"\x1b[2J" not in stated and b"\x1bc" not in stated, "nothing is cleared"
    assert b"\x1b[1A" in stated, "the page before is drawn over"
    assert stated.rfind(b"\x1b[?25h") > stated.rfind(b"\x1b[?25l") >= 0, "the cursor is back"


def test_what_does_not_fit_the_terminal_is_cut_until_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=20, height=5)
    monkeypatch.setattr(live_screen, "terminal", lambda: console)
    with live_screen.screen() as screen:
        screen.show([f"line {number}" for number in range(10)])
        assert "line 2" in stream.getvalue()
        assert "line 3" not in stream.getvalue()
        assert "lines 1 to 3 of 10" in stream.getvalue()
    assert "line 9" in stream.getvalue()


def test_keys_move_through_a_page_and_stay_where_they_are_when_it_is_refreshed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=80, height=5)
    monkeypatch.setattr(live_screen, "terminal", lambda: console)

    def where() -> str:
        found = re.findall(r"lines \d+ to \d+ of \d+", stream.getvalue())
        return str(found[-1])

    with live_screen.screen() as screen:
        assert isinstance(screen, live_screen.LiveScreen)
        screen.show([f"line {number}" for number in range(10)])
        for key, shown in (
            (b"\x1b[B", "2 to 4"), (b"\x1b[6~", "5 to 7"), (b"G", "8 to 10"), (b" ", "8 to 10"),
            (b"x", "8 to 10"), (b"k", "7 to 9"), (b"\x1b[5~", "4 to 6"),
        ):  # fmt: skip
            screen.move(key)
            assert where() == f"lines {shown} of 10", key
        screen.show([f"line {number}" for number in range(20)])
        assert where() == "lines 4 to 6 of 20"


def test_what_needs_somebody_is_first_and_the_rest_is_counted() -> None:
    def group(name: str, **fields: Any) -> GroupStats:
        values = {"ready": 0, "retry": 0, "inflight": 0, "dead": 0, "oldest_age_s": None}
        known: dict[str, Any] = {**values, "waiting": (), "paused": False, "workers": 1}
        return GroupStats(name, "push", **(known | fields))

    groups = (
        group("idle"), group("busy", ready=9, oldest_age_s=5.0), group("dead", dead=1),
        group("stands", ready=1, workers=0), group("fails", waiting=(Waiting(3, 2, 0),)),
        group("paused", ready=1, paused=True, oldest_age_s=1.0),
        *(group(f"other-{n}") for n in range(300)),
    )  # fmt: skip
    topics = (
        TopicStats("a", 1, 0, 0, 0, groups[:2]), TopicStats("b", 1, 0, 0, 0, groups[2:]),
        TopicStats("nobody", 1, 3, 0, 3, ()),
    )  # fmt: skip
    worst = worst_first(Stats("default", topics))
    assert [topic.topic for topic in worst.topics] == ["b", "a", "nobody"]
    assert [g.group for g in worst.topics[0].groups][:4] == ["paused", "stands", "fails", "dead"]
    assert sum(1 for _ in worst.groups) == 200
