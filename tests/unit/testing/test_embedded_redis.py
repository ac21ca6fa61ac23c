"""The embedded Redis: a real server that ends with whoever started it."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from rqretry.core.errors import ConfigError
from rqretry.testing import embedded_redis
from rqretry.testing.embedded_redis import EmbeddedRedis, find_server
from tests.support.servers import ServerBinary, available_servers, start

SERVERS = available_servers()


@pytest.fixture(params=SERVERS, ids=[server.version for server in SERVERS])
def binary(request: pytest.FixtureRequest) -> Iterator[ServerBinary]:
    yield request.param


def connect(server: EmbeddedRedis) -> "redis.Redis":
    return redis.Redis.from_url(server.url)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until_gone(pid: int, directory: Path) -> None:
    deadline = time.monotonic() + 10
    while is_running(pid) or directory.exists():
        assert time.monotonic() < deadline, f"server {pid} or {directory} is still there"
        time.sleep(0.01)


def test_it_serves_on_a_private_unix_socket_that_redis_py_understands(binary: ServerBinary) -> None:
    with EmbeddedRedis(binary.path) as server, connect(server) as client:
        assert client.ping()
        assert server.url == f"unix://{server.socket_path}?db=0"
        assert len(str(server.socket_path)) < 100
        assert stat.S_IMODE(server.socket_path.parent.stat().st_mode) == 0o700


def test_it_never_evicts_never_saves_and_has_no_port(binary: ServerBinary) -> None:
    with EmbeddedRedis(binary.path) as server, connect(server) as client:
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert client.config_get("save") == {"save": ""}
        assert client.config_get("port") == {"port": "0"}


def test_it_reports_the_pid_and_the_version_of_the_server(binary: ServerBinary) -> None:
    with EmbeddedRedis(binary.path) as server, connect(server) as client:
        info = client.info("server")
        assert info["process_id"] == server.pid
        recorded = info.get(
            "valkey_version", info["redis_version"]
        )  # Valkey says 7.2.4 for the other
        assert recorded == server.version == binary.version


def test_stopping_ends_the_server_and_removes_its_directory() -> None:
    with EmbeddedRedis() as server:
        pid, directory = server.pid, server.socket_path.parent
    assert not is_running(pid)
    assert not directory.exists()
    server.stop()


def test_a_stopped_server_can_be_started_again_empty() -> None:
    server = EmbeddedRedis()
    with server, connect(server) as client:
        client.set("key", "value")
    with server, connect(server) as client:
        assert client.get("key") is None


@pytest.mark.parametrize("crash", [True, False], ids=["after a crash", "in good order"])
def test_a_restart_keeps_socket_and_data_with_an_append_only_file(
    binary: ServerBinary, crash: bool
) -> None:
    with EmbeddedRedis(binary.path, appendonly=True) as server:
        url, pid = server.url, server.pid
        with connect(server) as client:
            client.set("key", "value")
        if crash:
            server.kill()
            assert not is_running(pid)
        server.restart()
        with connect(server) as client:
            assert client.get("key") == b"value"
        assert server.url == url
        assert server.pid != pid


def test_a_restart_without_an_append_only_file_is_empty() -> None:
    with EmbeddedRedis() as server:
        with connect(server) as client:
            client.set("key", "value")
        server.restart()
        with connect(server) as client:
            assert client.get("key") is None


def test_a_directory_of_the_caller_outlives_the_server(tmp_path: Path) -> None:
    durable = EmbeddedRedis(directory=tmp_path, appendonly=True, appendfsync="everysec")
    with durable as server, connect(server) as client:
        client.set("key", "value")
    with EmbeddedRedis(directory=tmp_path, appendonly=True) as server, connect(server) as client:
        assert client.get("key") == b"value"


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_the_server_ends_when_its_starter_is_killed(end: signal.Signals) -> None:
    program = (
        "from rqretry.testing.embedded_redis import EmbeddedRedis\n"
        "server = EmbeddedRedis().start()\n"
        "print(server.pid, server.socket_path.parent, flush=True)\n"
        "input()\n"
    )
    with subprocess.Popen(
        (sys.executable, "-c", program), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdout is not None
        pid, directory = starter.stdout.readline().split()
        assert is_running(int(pid))
        starter.send_signal(end)
    wait_until_gone(int(pid), Path(directory))


def test_a_server_that_does_not_start_is_quoted_in_the_error() -> None:
    with pytest.raises(ConfigError, match=r"did not start: .*nonsense"):
        EmbeddedRedis(extra=("--nonsense", "1")).start()


def test_a_binary_that_is_not_a_server_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"/no/such/server"):
        EmbeddedRedis("/no/such/server")
    with pytest.raises(ConfigError, match="does not state a Redis version"):
        EmbeddedRedis(sys.executable)


def test_a_lost_parent_process_of_the_server_is_an_error_and_can_be_stopped() -> None:
    server = EmbeddedRedis().start()
    directory = server.socket_path.parent
    os.kill(os.getpgid(server.pid), signal.SIGTERM)  # the server's session leader is its parent
    wait_until_gone(server.pid, directory)
    with pytest.raises(ConfigError, match="is gone"):
        server.restart()
    server.stop()


def test_what_needs_a_started_server_says_so() -> None:
    server = EmbeddedRedis()
    for use in (lambda: server.url, server.kill, server.restart):
        with pytest.raises(ConfigError, match="not started"):
            use()


def test_without_any_server_the_error_names_the_extra_and_the_alternatives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(embedded_redis, "bundled_servers", list)
    with pytest.raises(ConfigError, match=r"rqretry\[embedded\].*URL"):
        find_server()


@pytest.mark.parametrize(
    ("redis", "valkey", "bundled", "newest"),
    [
        (None, "8.0.1", None, "valkey-server"),
        ("7.0.15", None, "6.2.14", "redis-server"),
        ("6.2.14", "7.2.8", "9.1.2", "bundled"),
        ("9.9.0", "7.2.8", "10.0.0", "bundled"),
        ("gone", "7.2.8", None, "valkey-server"),
    ],
)
def test_the_newest_server_of_the_machine_and_its_wheels_is_used(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    redis: str | None,
    valkey: str | None,
    bundled: str | None,
    newest: str,
) -> None:
    def stub(name: str, version: str | None) -> Path | None:
        if version is None:
            return None
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\necho 'Server v={version} bits=64'\n")
        path.chmod(0o755)
        return path

    on_path = {"redis-server": stub("redis-server", redis)}
    on_path["valkey-server"] = stub("valkey-server", valkey)
    in_wheels = [path for path in [stub("bundled", bundled)] if path is not None]
    monkeypatch.setattr(shutil, "which", on_path.get)
    monkeypatch.setattr(embedded_redis, "bundled_servers", lambda: in_wheels)
    assert find_server() == tmp_path / newest


def test_a_cluster_of_one_node_owns_every_slot(binary: ServerBinary) -> None:
    with start(binary, cluster=True) as server, connect(server) as client:
        slots = client.execute_command("CLUSTER SLOTS")
        assert [(first, last) for first, last, *_ in slots] == [(0, 16383)]
        assert client.set("key", "value")


def test_starting_a_running_server_again_starts_no_second_one(binary: ServerBinary) -> None:
    with EmbeddedRedis(binary.path) as server:
        pid = server.pid
        assert server.start().pid == pid
