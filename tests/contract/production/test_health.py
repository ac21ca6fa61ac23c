"""/livez and /readyz: what they answer, and how soon they know."""

import http.client
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rqretry.supervision import health
from rqretry.supervision.health import SILENT_S, UNPROVED_S, Board
from rqretry.supervision.health_port import HealthPort
from rqretry.worker.registration import Condition
from tests.contract.production.conftest import Service, Site, until
from tests.support.servers import free_port

pytestmark = pytest.mark.chaos


@contextmanager
def always_live(service: Service) -> Iterator[None]:
    """Inside the block /livez never answers anything but 200."""
    wrong: list[tuple[int, Any]] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.02):
            answer = service.get("/livez")
            if answer[0] != 200:
                wrong.append(answer)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert wrong == []


def test_ready_follows_a_redis_that_goes_and_comes_back_and_live_stays(site: Site) -> None:
    service = site.ready("--processes", "2")
    with always_live(service):
        for _ in range(2):
            site.server.kill()
            assert service.becomes(503) < 2.0
            # A busy process may still tell what it saw while the server started the last time.
            until(
                lambda: "unreachable" in service.get("/readyz")[1]["reason"], say=service.diagnosis
            )

            site.server.start()
            assert service.becomes(200) < 2.0
    site.client.publish_many("t", [0] * 10)
    site.committed(10)


def test_ready_notices_a_redis_that_hangs(site: Site) -> None:
    service = site.ready()
    with always_live(service):
        os.kill(site.server.pid, signal.SIGSTOP)
        try:
            took = service.becomes(503)
            reason = service.get("/readyz")[1]["reason"]
        finally:
            os.kill(site.server.pid, signal.SIGCONT)
        back = service.becomes(200)

    assert took < 2.5
    assert "did not answer in time" in reason
    assert back < 2.0


def test_ready_notices_a_redis_that_answers_and_takes_no_writes(site: Site) -> None:
    service = site.ready()

    def shown() -> str:
        """What the supervisor itself was told, not one of its processes."""
        reason = str(service.get("/readyz")[1]["reason"])
        return "" if reason.startswith("process ") else reason

    with always_live(service):
        site.redis.config_set("min-replicas-to-write", 1)
        try:
            assert site.redis.ping()
            service.becomes(503)
            until(lambda: "has too few replicas" in shown(), say=service.diagnosis)
        finally:
            site.redis.config_set("min-replicas-to-write", 0)
        service.becomes(200)


def test_a_process_that_is_killed_is_replaced_and_live_stays(site: Site) -> None:
    service = site.ready("--processes", "2")
    before = service.pids()
    with always_live(service):
        os.kill(min(before), signal.SIGKILL)
        service.becomes(503)
        service.becomes(200)
    assert len(service.pids()) == 2
    assert service.pids() != before


def test_a_worker_that_stops_is_live_and_not_ready(site: Site) -> None:
    service = site.ready()
    site.client.publish("t", 1.5)
    until(lambda: bool(site.ledger()))
    service.process.terminate()
    service.becomes(503)

    assert service.get("/readyz")[1]["reason"] == "stopping"
    assert service.get("/livez")[0] == 200
    assert service.process.wait(10) == 0
    assert site.stats().counters["succeed"] == 1


# -- the port --------------------------------------------------------------------------------


@pytest.fixture
def port() -> Iterator[int]:
    """The port of a board on which nothing has happened yet."""
    number = free_port()
    with HealthPort(Board(1), "127.0.0.1", number):
        yield number


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/livez", 200),
        ("HEAD", "/livez", 200),
        ("GET", "/livez?verbose", 200),
        ("GET", "/readyz", 503),
        ("HEAD", "/readyz", 503),
        ("GET", "/", 404),
        ("GET", "/livez/", 404),
        ("POST", "/livez", 405),
        ("BREW", "/livez", 501),
    ],
)
def test_the_port_answers_json_or_nothing(port: int, method: str, path: str, status: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request(method, path)
    reply = connection.getresponse()
    body = reply.read()
    connection.close()
    assert reply.status == status
    assert reply.headers["Content-Type"] == "application/json"
    assert (body == b"") == (method == "HEAD")


def test_garbage_and_clients_that_go_away_do_no_harm(
    port: int, capfd: pytest.CaptureFixture[str]
) -> None:
    for garbage in (b"\x00\xff\r\n\r\n", b"GET", b"GET /livez HTTP/1.1\r\n"):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(garbage)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", "/livez")
    assert connection.getresponse().status == 200
    connection.close()
    assert "Traceback" not in capfd.readouterr().err


# -- the board -------------------------------------------------------------------------------


class Clock:
    """Time that only moves when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(health, "time", clock)
    return clock


def board_of(clock: Clock, wanted: int = 1) -> Board:
    """A board on which everything is well."""
    board = Board(wanted)
    board.checked(stopping=False)
    board.asked_server(None, clock.now)
    for pid in range(1, wanted + 1):
        board.started(pid)
        board.reported(pid, Condition("working", None, clock.now))
    assert board.ready()[0]
    return board


def test_a_process_that_stops_reporting_has_a_blocked_event_loop(clock: Clock) -> None:
    board = board_of(clock, wanted=2)
    clock.now += SILENT_S + 0.1
    board.asked_server(None, clock.now)
    board.reported(2, Condition("working", None, clock.now))

    good, body = board.ready()

    assert not good
    assert body["reason"] == "process 1: has not reported for 4.1 s: its event loop is blocked"
    assert [row["ready"] for row in body["processes"]] == [False, True]


def test_a_process_that_reports_but_does_not_reach_redis_is_not_ready(clock: Clock) -> None:
    board, proved = board_of(clock), clock.now
    clock.now += UNPROVED_S + 0.1
    board.asked_server(None, clock.now)
    board.reported(1, Condition("working", None, proved))
    assert "has not reached Redis for" in board.ready()[1]["reason"]


def test_a_hiccup_of_one_connection_is_no_reason(clock: Clock) -> None:
    board = board_of(clock)
    board.reported(1, Condition("working", "Redis is unreachable", clock.now))
    assert board.ready()[0]
    clock.now += 0.6
    board.reported(1, Condition("working", "Redis did not answer", clock.now))
    assert board.ready()[1]["reason"] == "process 1: Redis did not answer"
    board.reported(1, Condition("working", None, clock.now))
    assert board.ready()[0]


def test_fewer_processes_than_wanted_are_not_ready_but_live(clock: Clock) -> None:
    board = board_of(clock, wanted=2)
    board.ended(2)
    assert board.ready()[1]["reason"] == "1 of 2 processes are not there yet"
    board.started(3)
    assert board.ready()[1]["reason"] == "process 3: starting"
    assert board.live()[0]


def test_a_supervisor_that_hangs_is_not_live(clock: Clock) -> None:
    board = board_of(clock)
    clock.now += 11
    assert not board.live()[0]
