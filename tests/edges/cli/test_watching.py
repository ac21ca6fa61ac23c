"""`status --watch` on a terminal: redrawn in place, cut where it is too long, and put back."""

import fcntl
import io
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path

import pytest
from rich.console import Console

from rqretry import Client
from rqretry.cli import live_screen
from tests.edges.cli.shell import CLEAN, Shell

ROOT = Path(__file__).parents[3]


def test_status_watch_redraws_in_place_and_leaves_the_terminal_as_it_was(
    shell: Shell, client: Client
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
    with live_screen.screen() as show:
        show([f"line {number}" for number in range(10)])
        assert "line 3" in stream.getvalue()
        assert "line 9" not in stream.getvalue()
    assert "line 9" in stream.getvalue()
