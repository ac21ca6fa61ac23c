"""What goes wrong in handlers, found from what a person would type on a bad night."""

import os
import re
import signal
import textwrap
from pathlib import Path

from rqretry.version import __version__
from tests.edges.cli.conftest import Program
from tests.edges.cli.shell import Shell
from tests.edges.cli.test_program import ended, wait_until

NIGHT = """
    import ctypes
    import time
    from rqretry import App, RetryPolicy

    app = App()
    ONCE = RetryPolicy.fixed("10ms", max_retries=0)

    @app.consumer("payments", group="charge", visibility="1s", policy=ONCE)
    async def charge(message):
        match message.body:
            case {"poison": _}:
                ctypes.string_at(0)
            case {"hold": seconds}:
                hold_the_loop(seconds)
            case {"bug": kind, "card": card}:
                raise [KeyError, ValueError, ConnectionRefusedError][kind](f"card {card} is odd")

    def hold_the_loop(seconds):
        time.sleep(seconds)

    @app.consumer("reports", group="print", visibility="1s", consume_timeout="300ms", policy=ONCE,
                  concurrency=1)
    def print_it(message):
        time.sleep(3600)
"""
BUGS = 3


def test_the_cause_of_what_handlers_do_is_in_the_output(
    program: Program, tmp_path: Path, shell: Shell
) -> None:
    (tmp_path / "night.py").write_text(textwrap.dedent(NIGHT))
    worker = program("worker", "night:app", "--app-dir", str(tmp_path), "--log-format", "text")

    def lives() -> bool:
        return bool(shell.json("workers")["workers"])

    def dead(group: str, count: int) -> bool:
        rows = shell.json("dlq", "list", group)["clusters"]
        return bool(sum(row["count"] for row in rows) == count)

    wait_until(lives)
    for number in range(4 * BUGS):
        shell.ok("publish", "payments", "--body", f'{{"bug": {number % BUGS}, "card": {number}}}')
    wait_until(lambda: dead("charge", 4 * BUGS))
    three_bugs_in_one_queue(shell)
    who_is_there(shell)

    poison = shell.ok("publish", "payments", "--body", '{"poison": 1}').strip()
    wait_until(lambda: dead("charge", 4 * BUGS + 1))
    assert "the worker's process ended with SIGSEGV while it ran" in shell.ok(
        "dlq", "list", "charge"
    )
    wait_until(lives)
    assert [row["restarts"] for row in shell.json("workers")["workers"]][-1] == 1

    held = shell.ok("publish", "payments", "--body", '{"hold": 6}').strip()
    wait_until(lambda: "stuck for" in shell.ok("workers"))
    (row,) = shell.json("inflight", "charge")["messages"]
    assert (row["id"], row["holder"].split(":")[0]) == (held, os.uname().nodename)
    assert row["since_ms"]

    thread = shell.ok("publish", "reports", "--body", "1").strip()
    wait_until(lambda: dead("print", 1))
    _, err = ended(worker, signal.SIGTERM)
    assert f"ended (SIGSEGV) while it ran message {poison} of group charge" in err
    blocked = r"its event loop is blocked while it ran message (\S+) of .*: hold_the_loop \(night"
    assert re.findall(blocked, err) == [held]
    late = (
        f"message {thread} of reports, group print, after 1 delivery: the handler ran longer than"
    )
    assert late in err
    assert "its handlers are stuck" in err


def three_bugs_in_one_queue(shell: Shell) -> None:
    rows = shell.json("dlq", "list", "charge")["clusters"]
    kinds = {row["error"].split(":")[0] for row in rows}
    assert kinds == {"KeyError", "ValueError", "ConnectionRefusedError"}
    assert [row["count"] for row in rows] == [4] * BUGS


def who_is_there(shell: Shell) -> None:
    (row,) = shell.json("workers")["workers"]
    assert (row["version"], row["service"], row["restarts"]) == (__version__, "night", 0)
    assert row["host"] == row["name"].split(":")[0]
    assert (row["slots"] > 1, row["busy"], row["blocked_s"]) == (True, 0, 0)
    assert re.search(r"version +service .* busy +failed +restarts", shell.ok("workers"))
