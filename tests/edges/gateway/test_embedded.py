"""`rqretry gateway --redis embedded`, as somebody starts it who has nothing else."""

import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest

from rqretry import Client
from tests.edges.gateway.conftest import launch, wait_until_ready
from tests.edges.gateway.official import Official

_ENDS_IN_S = 15


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where programs make their temporary files; short enough for the name of a socket."""
    with tempfile.TemporaryDirectory(prefix="gateway-") as name:
        monkeypatch.setenv("TMPDIR", name)
        yield Path(name)


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., tuple[str, "subprocess.Popen[bytes]"]]]:
    """Starts gateways that print to `printed` in the folder; answers where they listen."""
    running: list[subprocess.Popen[bytes]] = []

    def starts(*options: str) -> tuple[str, "subprocess.Popen[bytes]"]:
        everything = ("--redis", "embedded", "--auto-create", *options)
        address, process = launch(*everything, printed=folder / "printed")
        running.append(process)
        wait_until_ready(address, process)
        return address, process

    yield starts
    for process in running:
        process.kill()
        process.wait()


def test_messages_are_sent_received_and_recalled_and_a_signal_leaves_nothing_behind(
    rocketmq: ModuleType, start: Callable[..., tuple[str, "subprocess.Popen[bytes]"]], folder: Path
) -> None:
    address, process = start()
    variables = shlex.split((folder / "printed").read_text())
    (url,) = (v.partition("=")[2] for v in variables if v.startswith("RQRETRY_REDIS_URL="))
    official = Official(rocketmq, address)
    try:
        producer, consumer = official.producer("orders"), official.simple("billing", "orders")
        receipt = producer.send(official.message("orders", b"now"))
        (got,) = consumer.receive(16, 30)
        assert (got.body, got.message_id) == (b"now", receipt.message_id)
        with Client(url) as client:
            assert client.admin.message(receipt.message_id).topic == "orders"
        consumer.ack(got)
        due = int(time.time()) + 600
        later = producer.send(official.message("orders", b"never", delivery_timestamp=due))
        recalled = producer.recall_message("orders", later.recall_handle)
        assert recalled == later.message_id
    finally:
        official.close()
    below = descendants(process.pid)
    assert len(below) == 2  # the server and its watchdog
    process.terminate()
    assert process.wait(_ENDS_IN_S) == 0
    until_gone(below)
    assert [path.name for path in folder.iterdir()] == ["printed"]


def test_processes_and_their_server_end_when_the_one_that_started_them_is_killed(
    start: Callable[..., tuple[str, "subprocess.Popen[bytes]"]], folder: Path
) -> None:
    _, process = start("--processes", "2")
    below = descendants(process.pid)
    assert len(below) == 4
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    until_gone(below)
    assert [path.name for path in folder.iterdir()] == ["printed"]


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and theirs."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [found for child in map(int, children) for found in (child, *descendants(child))]


def until_gone(pids: list[int]) -> None:
    end = time.monotonic() + _ENDS_IN_S
    while left := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < end, f"{left} are still there"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
