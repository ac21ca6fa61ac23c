"""The command line as a user meets it: in this process for most tests, as a program for some."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from rqretry import Client
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.edges.cli.shell import CLEAN, Shell
from tests.support.servers import python_path

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def running() -> Iterator[EmbeddedRedis]:
    """A server for all tests of one process."""
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture
def server(running: EmbeddedRedis) -> EmbeddedRedis:
    """An empty server with the settings it started with."""
    with redis.Redis(unix_socket_path=str(running.socket_path)) as connection:
        connection.flushall()
        connection.config_set("maxmemory-policy", "noeviction")
    return running


@pytest.fixture
def client(server: EmbeddedRedis) -> Iterator[Client]:
    """A client of the server, to prepare and to look."""
    with Client(server.url) as made:
        yield made


@pytest.fixture
def shell(server: EmbeddedRedis) -> Shell:
    """The command line, talking to the server."""
    return Shell(server.url)


Program = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def program(server: EmbeddedRedis) -> Iterator[Program]:
    """Starts `rqretry` as a program; what still runs at the end of the test is killed."""
    started: list[subprocess.Popen[str]] = []
    known = {name: value for name, value in os.environ.items() if name not in CLEAN}
    environment = {**known, "RQRETRY_REDIS_URL": server.url, "PYTHONPATH": python_path()}

    def start(
        *request_parts: str, env: dict[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen(
            [sys.executable, "-m", "rqretry", *request_parts],
            env={**environment, **(env or {})},
            **(pipes | options),
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()
