"""The small HTTP ports of workers: a request has its time, and no more."""

import http.client
import socket
from contextlib import suppress

import pytest

from rqretry.supervision import http_port
from rqretry.supervision.health import Board
from rqretry.supervision.health_port import HealthPort
from tests.support.servers import free_port


def test_a_head_that_never_ends_is_cut_however_many_bytes_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_port, "_REQUEST_S", 0.3)
    port = free_port()
    with HealthPort(Board(1), "127.0.0.1", port):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as slow:
            slow.sendall(b"GET /livez HTTP/1.1\r\nX-")
            slow.settimeout(0.02)
            answer: bytes | None = None
            while answer is None:
                with suppress(TimeoutError):
                    answer = received(slow)
        assert answer == b""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/livez")
        assert connection.getresponse().status == 200
        connection.close()


def received(slow: socket.socket) -> bytes:
    """Send one byte more; what came back, b"" if the connection is cut. TimeoutError."""
    try:
        slow.sendall(b"a")
        return slow.recv(1000)
    except ConnectionError:
        return b""
