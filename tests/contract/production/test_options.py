"""Options that cannot work are refused in one sentence."""

import socket

import pytest

from rqretry import ConfigError
from rqretry.supervision.health import Board
from rqretry.supervision.health_port import HealthPort
from tests.edges.cli.shell import Shell


@pytest.mark.parametrize(
    ("request_parts", "shown"),
    [
        (["--max-memory", "lots"], "--max-memory 'lots' must be a size of at least 1M"),
        (["--max-memory", "5K"], "--max-memory '5K' must be a size of at least 1M"),
        (["--max-memory", "-1M"], "--max-memory '-1M' must be a size of at least 1M"),
        (["--max-messages", "0"], "--max-messages"),
        (["--health-port", "0"], "--health-port"),
        (["--health-port", "65536"], "--health-port"),
        (["--health-host", "::"], "--health-host does nothing without --health-port"),
        (["--log-format", "xml"], "--log-format"),
        (["--log-level", "loud"], "--log-level"),
    ],
)
def test_a_wrong_option_is_wrong_usage(request_parts: list[str], shown: str) -> None:
    line = Shell("redis://127.0.0.1:1/0").fails("worker", "shop:app", *request_parts, status=2)
    assert shown in line


def test_a_health_port_that_is_taken_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"--health-port {port} cannot be opened on"):
            HealthPort(Board(1), "127.0.0.1", port)


def test_a_health_host_that_is_not_here_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"cannot be opened on '192\.0\.2\.1'"):
        HealthPort(Board(1), "192.0.2.1", 8080)
