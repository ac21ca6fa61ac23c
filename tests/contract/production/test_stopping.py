"""SIGTERM: under load, before anything runs, without Redis, and with a handler that hangs."""

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.contract.production.conftest import Site, until
from tests.support.servers import free_port

pytestmark = pytest.mark.chaos

SLOW_IMPORT = """
import time
from pathlib import Path
from rqretry import App
app = App()
app.consumer("t", group="g")(lambda message: None)
if not Path("{go_on}").exists():
    Path("{started}").touch()
    try:
        time.sleep(60)
    except {swallowed}:
        pass
"""


@pytest.mark.campaign
def test_sigterm_under_load_of_four_processes_loses_nothing_and_counts_nothing_unstarted(
    site: Site,
) -> None:
    grace = 8.0
    service = site.ready("--processes", "4", "--grace", f"{grace:g}s")
    site.client.publish_many("t", [0.02] * 500)
    until(lambda: len(site.ledger()) >= 100)

    start = time.monotonic()
    status = service.stop()
    took = time.monotonic() - start

    stats, started = site.stats(), len(site.ledger())
    assert status == 0
    assert took < grace
    assert len({line["pid"] for line in site.ledger()}) == 4
    assert stats.counters["succeed"] == started == len(site.ledger("end"))
    assert stats.ready + stats.retry == 500 - started > 0
    assert stats.inflight == 0
    assert not {"fail", "expire"} & stats.counters.keys()
    assert site.live_workers() == 0
    site.ready()
    site.committed(500)
    assert len({line["id"] for line in site.ledger()}) == len(site.ledger()) == 500
    assert {line["attempt"] for line in site.ledger()} == {1}


@pytest.mark.parametrize("swallowed", ["ZeroDivisionError", "BaseException"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_app_is_imported_ends_cleanly(
    site: Site, tmp_path: Path, number: signal.Signals, swallowed: str
) -> None:
    started = tmp_path / "started"
    code = SLOW_IMPORT.format(started=started, go_on=tmp_path / "never", swallowed=swallowed)
    (tmp_path / "slow.py").write_text(code)
    service = site.start(app="slow:app", folder=tmp_path)
    until(started.exists)

    service.process.send_signal(number)

    assert service.process.wait(5) == 0
    assert service.log_path.read_text() == ""


def test_a_worker_whose_redis_never_came_stops_at_once(site: Site) -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    service = site.start("--url", url)
    until(lambda: service.get("/livez")[0] == 200 and bool(service.pids()))
    reason = service.get("/readyz")[1]["reason"]

    start = time.monotonic()
    assert service.stop() == 0
    assert time.monotonic() - start < 2.0
    assert reason


def test_a_worker_whose_redis_is_gone_stops_within_a_second_or_so(site: Site) -> None:
    service = site.ready("--processes", "2")
    site.server.kill()
    service.becomes(503)

    start = time.monotonic()
    status = service.stop()
    took = time.monotonic() - start
    site.server.start()

    assert status == 0
    assert took < 2.0


def test_a_process_that_outlives_its_grace_is_killed_and_the_status_says_so(site: Site) -> None:
    service = site.ready("--grace", "100ms")
    site.client.publish("odd", ["block", 60])
    until(lambda: bool(site.ledger()))
    (pid,) = service.pids()

    start = time.monotonic()
    assert service.stop() == 1
    assert time.monotonic() - start < 6
    service.says(f"worker process {pid} did not stop within its grace; killed")
    until(lambda: not Path(f"/proc/{pid}").exists())


def test_signals_that_keep_coming_neither_kill_it_nor_print_an_error(site: Site) -> None:
    service = site.ready("--grace", "60s")
    site.client.publish("t", 60)
    until(lambda: bool(site.ledger()))
    sent = 0
    while service.process.poll() is None:
        os.killpg(service.process.pid, signal.SIGTERM)
        sent += 1
        with suppress(subprocess.TimeoutExpired):
            service.process.wait(0.01)
    assert sent >= 8
    assert service.process.returncode == 0
    assert {record["level"] for record in service.records()} <= {"info", "warning"}
    assert site.stats().counters["release"] == 1


def test_the_second_signal_is_immediate(site: Site) -> None:
    service = site.ready("--grace", "60s")
    site.client.publish("t", 60)
    until(lambda: bool(site.ledger()))
    service.process.terminate()
    until(lambda: service.get("/readyz")[1]["reason"] == "stopping")

    start = time.monotonic()
    os.kill(service.process.pid, signal.SIGTERM)
    assert service.process.wait(10) == 0
    assert time.monotonic() - start < 3
    stats = site.stats()
    assert (stats.ready, stats.inflight, stats.counters["release"]) == (1, 0, 1)
