"""A bad night, with real workers: dead letters of three kinds, and settings that must hold."""

import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from rqretry import Client
from tests.edges.cli.conftest import Program
from tests.edges.cli.shell import Shell

FARM = """
from pathlib import Path

from rqretry import App, ConsumeResult, Message

app = App()
fixed = Path(__file__).with_name("fixed")


@app.consumer("claims", group="claims", max_retries=0)
async def settle(message: Message[int]) -> ConsumeResult:
    kind = message.body % 3
    if kind == 0 and not fixed.exists():
        raise ValueError("no such flight")
    if kind == 1:
        raise KeyError("carrier")
    if kind == 2:
        raise ConnectionError("refused")
    return ConsumeResult.SUCCESS
"""
ASKING = """
from rqretry import App, Message

app = App()


@app.consumer("claims", group="claims", max_retries=16)
async def settle(message: Message[int]) -> None:
    pass
"""


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def stopped(process: "subprocess.Popen[str]") -> str:
    """Stop a worker; what it logged."""
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    return err


@pytest.mark.slow
def test_one_kind_of_a_thousand_dead_letters_is_redriven_behind_canaries(
    program: Program, client: Client, shell: Shell, tmp_path: Path
) -> None:
    (tmp_path / "cli_farm.py").write_text(FARM)
    quiet = ("--log-level", "error")  # a thousand lines fill a pipe that nobody reads
    worker = program("worker", "cli_farm:app", "--app-dir", str(tmp_path), *quiet)
    client.publish_many("claims", list(range(1000)))
    wait_until(lambda: client.admin.stats().dead == 1000)

    rows = shell.json("dlq", "list", "claims")["clusters"]
    assert Counter({row["error"]: row["count"] for row in rows}) == {
        "ValueError: no such flight": 334, "KeyError: 'carrier'": 333,
        "ConnectionError: refused": 333,
    }  # fmt: skip
    assert len(shell.ok("dlq", "list", "claims").splitlines()) == 1 + 3
    kind = next(row["fingerprint"] for row in rows if row["count"] == 334)
    redrive = ("dlq", "redrive", "claims", "--fingerprint", kind, "--canary", "5", "--yes")

    failed = shell(*redrive, "--rate", "50/s", "--json")
    assert failed.exit_code == 1, failed.output
    answer = json.loads(failed.stdout)
    assert (answer["count"], answer["matched"], answer["stopped"]) == (5, 334, True)
    assert "failed again: ValueError: no such flight" in answer["reason"]
    wait_until(lambda: client.admin.stats().dead == 1000)

    (tmp_path / "fixed").touch()
    again = shell.json(*redrive, "--rate", "500/s")
    assert (again["count"], again["canaries"], again["stopped"]) == (334, 5, False)
    wait_until(lambda: client.admin.stats().topics[0].stored == 666)
    assert [row["count"] for row in shell.json("dlq", "list", "claims")["clusters"]] == [333, 333]

    record = shell.json("audit")["entries"]
    steps = [(e["verb"], e["arguments"].get("step"), e["counts"]) for e in reversed(record)]
    canary, stop, second, rest = [step for step in steps if step[0] == "redrive"]
    assert canary == second == ("redrive", "canary", {"sent": 5})
    assert stop[1].startswith("stopped: canary")
    assert stop[2]["left"] == 329
    assert rest == ("redrive", None, {"sent": 329})
    stopped(worker)


def test_a_pinned_value_survives_a_worker_that_asks_for_another(
    program: Program, client: Client, shell: Shell, tmp_path: Path
) -> None:
    (tmp_path / "cli_asking.py").write_text(ASKING)
    request_parts = ("worker", "cli_asking:app", "--app-dir", str(tmp_path))

    def restarted() -> tuple[int, str]:
        worker = program(*request_parts)
        wait_until(lambda: any(group.workers for group in client.admin.stats().groups))
        err = stopped(worker)
        return shell.json("group", "show", "claims")["max_retries"], err

    assert restarted()[0] == 16
    shell.ok("group", "set", "claims", "--max-retries", "3")
    assert restarted()[0] == 16
    shell.ok("group", "set", "claims", "--max-retries", "3", "--pin")
    kept, err = restarted()
    assert kept == 3
    assert err.count("max_retries") == 1
    shell.ok("group", "set", "claims", "--unpin")
    assert restarted()[0] == 16
