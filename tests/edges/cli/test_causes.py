"""A bad night in one environment: the table of docs/operations.md leads to each cause."""

import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import redis

from rqretry import Client
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.edges.cli.conftest import ROOT, Program
from tests.edges.cli.shell import Shell
from tests.edges.cli.test_bad_night import wait_until

DAY = """
from rqretry import App, Message

app = App()


@app.consumer("payments", group="charge")
async def charge(message: Message[int]) -> None:
    raise ConnectionRefusedError("payments-7.internal:443 refused")


@app.consumer("ledger", group="book", ordered=True)
async def book(message: Message[int]) -> None:
    raise ValueError("no such account")


async def handle(message: Message[int]) -> None:
    pass


for name, options in (
    ("mail", {"rate_limit": "1/h"}), ("offers", {"tags": "gold"}), ("orders", {"max_retries": 3}),
    ("invoices", {}), ("alarms", {}),
):
    app.consumer(name, group=name, **options)(handle)
"""
NIGHT = """
from rqretry import App, Message

app = App()


@app.consumer("{0}", group="{0}", max_retries=9)
async def handle(message: Message[int]) -> None:
    pass
"""
ROW = re.compile(r"^\| (.*) \| (`rqretry .*`) \| (`.*`) \| (.*) \|$", re.MULTILINE)
INCIDENTS = [
    (seen, re.findall("`rqretry ([^`]*)`", typed), re.findall("`([^`]*)`", read))
    for seen, typed, read, _ in ROW.findall((ROOT / "docs/operations.md").read_text())
]


@pytest.fixture
def night(
    program: Program, server: EmbeddedRedis, client: Client, shell: Shell, tmp_path: Path
) -> Iterator[Callable[[], None]]:
    """All of it at once; what it gives fills the server, for the last of it."""
    started: list[subprocess.Popen[str]] = []

    def start(name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(text)
        quiet = ("--app-dir", str(tmp_path), "--log-level", "error")
        started.append(program("worker", f"{name}:app", *quiet))

    start("incidents_gone", NIGHT.format("backups"))
    start("incidents_day", DAY)
    wait_until(lambda: len(client.admin.workers()) == 2)
    started[0].send_signal(signal.SIGTERM)
    start("incidents_night", NIGHT.format("orders"))
    shell.ok("group", "pause", "invoices")
    client.publish_many("payments", range(120))
    for topic, count, options in (
        ("ledger", 3, {"message_group": "acc-7"}), ("mail", 5, {}), ("invoices", 3, {}),
        ("offers", 3, {"tag": "silver"}), ("photos", 2, {}),
    ):  # fmt: skip
        for body in range(count):
            client.publish(topic, body, **options)  # type: ignore[arg-type]
    ahead = datetime.now(UTC) + timedelta(hours=1)
    client.publish("alarms", "in 5 s", deliver_at=ahead + timedelta(seconds=5))
    shell.ok("topic", "set", "photos", "--max-messages", "2")
    started[0].wait(30)
    client.publish("backups", 1)
    wait_until(lambda: client.admin.group("orders").other_retries != ())
    wait_until(lambda: client.admin.stats(group="charge").waiting == 120)
    wait_until(lambda: client.admin.stats(group="book").topics[0].groups[0].blocked_groups == 1)
    with redis.Redis(unix_socket_path=str(server.socket_path)) as connection:
        yield lambda: connection.config_set("maxmemory", 1000)
        connection.config_set("maxmemory", 0)


@pytest.mark.slow
def test_the_table_of_the_operations_page_leads_to_each_cause(
    night: Callable[[], None], shell: Shell
) -> None:
    assert len(INCIDENTS) == 10
    known: dict[str, str] = {}
    for seen, typed, read in INCIDENTS:
        assert len(typed) <= 2
        if "doctor" in typed:
            night()
            shell.fails("publish", "mail", "--body", "1", status=1)
        for command in typed:
            known[command] = known.get(command) or " ".join(shell.ok(*command.split()).split())
        output = " ".join(known[command] for command in typed)
        for text in read:
            pattern = ".*".join(map(re.escape, text.split(" ... ")))
            assert re.search(pattern, output), f"{seen}: {text} is not in: {output}"
