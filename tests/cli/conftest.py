"""The command line as a user meets it: in this process for most tests, as a program for some."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner, Result

from rqretry import Client
from rqretry.edge.cli.main import cli
from rqretry.embedded import EmbeddedRedis

ROOT = Path(__file__).parents[2]
CLEAN = {"RQRETRY_REDIS_URL": None, "RQRETRY_NAMESPACE": None, "RQRETRY_DELAY_LEVELS": None}


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


class Shell:
    """Calls the command line in this process."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, *words: str, stdin: str | bytes | None = None, **env: str) -> Result:
        """Run one command; whatever its status."""
        variables = {**CLEAN, "RQRETRY_REDIS_URL": self.url, **env}
        return CliRunner(env=variables).invoke(cli, words, input=stdin, prog_name="rqretry")

    def ok(self, *words: str, stdin: str | bytes | None = None) -> str:
        """Run one command that must succeed; its standard output."""
        result = self(*words, stdin=stdin)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *words: str, stdin: str | bytes | None = None) -> dict[str, Any]:
        """Run one command that must succeed and print one JSON object, nothing else."""
        fields: dict[str, Any] = json.loads(self.ok(*words, "--json", stdin=stdin))
        assert fields.pop("schema") == 1
        return fields

    def fails(self, *words: str, status: int, stdin: str | bytes | None = None, **env: str) -> str:
        """Run one command that must fail with this status and one line of error; that line."""
        result = self(*words, stdin=stdin, **env)
        assert result.exit_code == status, result.output
        lines = result.stderr.splitlines()
        assert len(lines) == 1, result.stderr
        assert lines[0].startswith("Error: ")
        assert "Traceback" not in result.output
        return lines[0]


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
    environment = {**known, "RQRETRY_REDIS_URL": server.url, "PYTHONPATH": str(ROOT)}

    def start(*words: str, **options: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "rqretry", *words],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def bury(client: Client, topic: str, group: str, *bodies: Any) -> list[str]:
    """Dead letters: published, received once by a group without retries, and expired."""
    consumer = _grave(client, topic, group)
    ids = [str(id_) for id_ in client.publish_many(topic, bodies)]
    while client.admin.stats(topic, group).dead < len(ids):
        consumer.receive(32, invisible_duration=0.01, wait=0.02)
    return ids


def _grave(client: Client, topic: str, group: str) -> Any:
    client.admin.create_topic(topic)
    consumer = client.simple_consumer(group, topic, create_group=True, max_retries=0)
    return consumer
