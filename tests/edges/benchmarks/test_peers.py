"""Other systems: one that is not installed is skipped with the reason, and the table is there.

The harness is tried with a queue of its own kind, a list of Redis: no other system is needed.
"""

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.peers import environments, measure, side_by_side
from benchmarks.peers.catalog import PEERS, Peer
from benchmarks.peers.side_by_side import callers_table, markdown, summary_of
from benchmarks.scenarios import callers
from benchmarks.servers import Server
from benchmarks.workers import wait_until

HEADS = len(markdown({}).splitlines()[0].strip("|").split("|"))
TOY = """
import json
import peer, redis

RETRIES, RETURNS = {retries!r}, {returns!r}
client = redis.Redis(port=peer.PORT)


def one(number):
    client.rpush("todo", json.dumps(peer.body(number)))


def bulk(numbers):
    for number in numbers:
        one(number)


def put_back():
    while client.lmove("doing", "todo"):
        pass


def run():
    if RETURNS == "at the start":
        put_back()
    while True:
        raw = client.blmove("todo", "doing", 0)
        if RETURNS == "with traffic" and json.loads(raw)["n"] == peer.NUDGE:
            client.lrem("doing", 1, raw)
            put_back()
            continue
        try:
            peer.saw(json.loads(raw))
        except peer.FirstAttemptError:
            if RETRIES:
                client.rpush("todo", raw)
        client.lrem("doing", 1, raw)


def main():
    peer.serve(one, bulk, run)
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A system that the harness finds as it finds the others."""
    for name in ("peer.py", "start.py"):
        shutil.copy(environments.ADAPTERS / name, tmp_path)
    monkeypatch.setitem(PEERS, "toy", Peer((), (), "a list"))
    monkeypatch.setattr(measure, "ADAPTERS", tmp_path)
    monkeypatch.setattr(measure, "program", lambda _name: (sys.executable,))

    def write(*, retries: bool = True, returns: str = "never") -> None:
        (tmp_path / "toy_peer.py").write_text(TOY.format(retries=retries, returns=returns))

    return write


def test_every_message_fails_once_and_is_counted_twice(
    toy: Callable[..., None], tmp_path: Path
) -> None:
    toy()

    found = measure.retry("toy", tmp_path, 50)

    assert found["w3_checked"]
    assert (found["w3_done"], found["w3_messages"]) == (50, 50)
    assert found["w3_per_s"] > 0


def test_a_system_whose_retries_do_not_come_has_the_rate_of_what_it_did(
    toy: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "RETRY_LIMIT_S", 0.2)
    toy(retries=False)

    found = measure.retry("toy", tmp_path, 50)

    assert (found["w3_done"], found["w3_per_s"]) == (0, 0)


@pytest.mark.parametrize(
    ("returns", "survives", "needs_traffic"),
    [("at the start", True, False), ("with traffic", True, True), ("never", False, False)],
)
def test_what_a_killed_worker_held_comes_back_or_needs_traffic_or_is_lost(
    toy: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    returns: str,
    survives: bool,
    needs_traffic: bool,
) -> None:
    monkeypatch.setattr(measure, "HELD_S", 0)
    monkeypatch.setattr(measure, "STARTS_S", 0)
    if returns != "at the start":
        monkeypatch.setattr(measure, "LOSS_WAIT_S", 0.3)
    if returns == "never":
        monkeypatch.setattr(measure, "NUDGED_WAIT_S", 0.3)
    toy(returns=returns)

    found = measure.loss("toy", tmp_path)

    assert (found["survives_kill"], found["needs_traffic"]) == (survives, needs_traffic)
    assert (found["recovery_s"] is not None) == (returns == "at the start")


@pytest.mark.parametrize("text", ["raise OSError('no driver')", "raise SystemExit('no driver')"])
def test_a_system_that_cannot_publish_is_quoted_and_the_others_are_measured(
    toy: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
) -> None:
    toy()
    (tmp_path / "toy_peer.py").write_text(text)
    monkeypatch.setattr(side_by_side, "program", lambda name: name == "toy" or None)
    monkeypatch.setattr(callers, "AT_ONCE", (1,))

    found = side_by_side.callers_side_by_side(["toy"], 1, 20)

    assert set(found) == {"rqretry asyncio", "rqretry threads"}
    assert re.search(r"toy: callers ended with 1: .*no driver\n$", capsys.readouterr().err)


def test_a_worker_that_ends_too_early_is_quoted(toy: Callable[..., None], tmp_path: Path) -> None:
    toy()
    (tmp_path / "toy_peer.py").write_text("raise SystemExit('the toy is broken')")

    with Server() as server:
        bench = measure.Bench("toy", server, tmp_path)
        with bench.worker(1) as out, pytest.raises(TimeoutError, match="toy is broken"):
            wait_until(lambda: bool((tmp_path / "log").read_text()), 30, "its last words")
            measure._wait_for(out, 0)


@pytest.mark.parametrize(
    ("numbers", "done", "checked", "rate"),
    [
        ([0, 1, 0, 1], 2, True, 2 / 3),
        ([0, 1, 0, 1, 1], 2, False, 2 / 4),
        ([0, 0, 0, 1], 2, False, 2 / 3),
        ([0, 1, 0], 1, True, 1 / 2),
        ([0, 0, 0], 1, False, 1 / 2),
        ([0], 0, True, 0),
    ],
)
def test_each_message_is_handled_twice_and_no_oftener(
    numbers: list[int], done: int, checked: bool, rate: float
) -> None:
    starts = [float(second) for second in range(len(numbers))]

    found = measure.retried({"numbers": numbers, "starts": starts, "done": done}, 2)

    assert (found["w3_checked"], found["w3_per_s"]) == (checked, rate)


@pytest.mark.parametrize("killed", [pytest.param(True, marks=pytest.mark.campaign), False])
def test_systems_that_are_not_installed_are_skipped_and_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    killed: bool,
) -> None:
    monkeypatch.setattr(environments, "ROOT", tmp_path)
    file = tmp_path / "peers.json"

    request_parts = ["peers", "--only", "bullmq", "rq", "--messages", "200", "--out", str(file)]
    assert main(request_parts if killed else [*request_parts, "--no-kill"]) == 0

    printed = capsys.readouterr()
    assert "bullmq: skipped, not installed (make bench-peers)" in printed.err
    assert "rq: skipped, not installed (make bench-peers)" in printed.err
    (row,) = [line for line in printed.out.splitlines() if line.startswith("| rqretry")]
    assert "not " not in row
    assert row.count("|") == HEADS + 1
    assert ('"survives_kill": true' in file.read_text()) == killed


def test_every_system_says_how_it_is_set_up_and_has_its_adapter() -> None:
    for name, peer in PEERS.items():
        ending = {"python": "py", "node": "mjs", "ruby": "rb"}[peer.runtime]
        assert (environments.ADAPTERS / f"{name}_peer.{ending}").is_file()
        assert peer.settings
        assert peer.packages


def test_packages_of_debian_are_installed_once_and_the_reason_is_said_if_they_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "ROOT", tmp_path / "peers")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environments.program("sidekiq") is None
    assert "apt-get" in (environments.install("sidekiq") or "")

    script(tmp_path / "apt-get", "echo E: are you root? >&2; exit 100")
    assert environments.install("sidekiq") == "E: are you root?"

    for name in ("ruby", "sidekiq"):
        script(tmp_path / name, "echo Sidekiq 6.4.1")
    known = tmp_path / "dpkg-query"
    for driver in ("exit 1", "printf config-files"):
        script(known, f'case "$3" in ruby-sidekiq) printf installed;; *) {driver};; esac')
        assert environments.program("sidekiq") is None
        assert environments.install("sidekiq") == "E: are you root?"
    script(known, "printf installed")
    assert environments.install("sidekiq") is None
    assert environments.program("sidekiq") == (str(tmp_path / "ruby"),)
    assert environments.version("sidekiq") == "6.4.1"


def script(file: Path, text: str) -> None:
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o700)


@pytest.mark.campaign
def test_sidekiq_does_the_same_work_as_the_others() -> None:
    if environments.program("sidekiq") is None:
        pytest.skip("Sidekiq is not installed (make bench-peers, as root, on Debian)")

    found = measure.measure("sidekiq", 50, kill=False)
    many = measure.callers("sidekiq", 600)

    assert found["checked"]
    assert found["w3_checked"]
    assert 0 < found["w3_done"] <= 50  # to its least delay it adds up to nine seconds
    assert 0 < found["p50_ms"] <= found["p99_ms"]
    assert all(figure > 0 for figure in many.values())


def test_the_table_says_who_loses_messages() -> None:
    found: dict[str, dict[str, Any]] = {
        "careful": {"rate": 10.0, "survives_kill": True, "recovery_s": 3.0, "version": "1.2"},
        "careless": {"rate": 2000.0, "survives_kill": False, "recovery_s": None},
        "lazy": {"survives_kill": True, "needs_traffic": True, "recovery_s": None},
        "reckless": {"at_most_once": True},
    }

    careful, careless, lazy, reckless = markdown(found).splitlines()[2:]

    assert careful.startswith("| careful 1.2 |")
    assert careful.endswith("| 3.00 |")
    assert careless.endswith("| not in 150 s |")
    assert "2,000" in careless
    assert lazy.endswith("| only with traffic |")
    assert reckless.endswith("| lost (at most once) |")


def test_the_table_says_whose_counts_are_wrong_and_who_did_not_come_to_the_end() -> None:
    slow = {"w3_per_s": 150.0, "w3_done": 1500, "w3_messages": 2000, "w3_checked": True}
    wrong = {"rate": 2000.0, "checked": False, "w3_per_s": 150.0, "w3_checked": False}

    row, doubled = markdown({"slow": slow, "wrong": wrong}).splitlines()[2:]

    assert "| 150 (1,500 of 2,000 in 10 s) |" in row
    assert "| 2,000 (not each as often as it had to be) |" in doubled
    assert "| 150 (not each as often as it had to be) |" in doubled


def test_results_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file, picture = tmp_path / "found.json", tmp_path / "found.svg"
    file.write_text('{"w1": {"rate": 10, "spread": {"rate": [9, 11]}}, "w2": {"rate": 5}}')

    assert main(["plot", str(file), "--out", str(picture)]) == 0

    assert picture.read_text().startswith("<?xml")


def test_many_callers_of_a_system_are_measured_and_shown(
    toy: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    toy()
    monkeypatch.setattr(measure, "AT_ONCE", (8,))
    monkeypatch.setattr(callers, "AT_ONCE", (8,))
    found = measure.callers("toy", 64)
    assert found["8_per_s"] > 0
    assert found["8_p99_ms"] > 0
    (line,) = callers_table({"toy": summary_of([found, found])}).splitlines()[2:]
    assert line.startswith("| toy |")
