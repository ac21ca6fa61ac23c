"""A gateway as a program, on a private Redis, and the official Python client."""

import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from rqretry import AsyncClient, Client
from rqretry.gateway.access import AccessKeys
from rqretry.gateway.server import Gateway, Terms
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.edges.gateway.official import Official
from tests.support.servers import python_path


@pytest.fixture(scope="session")
def rocketmq(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The official client; it logs below the home directory, so that is another one meanwhile."""
    home = os.environ.get("HOME", "")
    os.environ["HOME"] = str(tmp_path_factory.mktemp("home"))
    try:
        return import_module("rocketmq")
    finally:
        os.environ["HOME"] = home


@pytest.fixture(scope="session")
def redis_server() -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture(scope="session")
def start_gateway(redis_server: EmbeddedRedis) -> Iterator[Callable[..., str]]:
    """Starts gateways; answers where they listen."""
    running: list[subprocess.Popen[bytes]] = []

    def start(*options: str, url: str = "", namespace: str = "") -> str:
        address, process = launch("--url", url or redis_server.url, *options, namespace=namespace)
        running.append(process)
        wait_until_ready(address, process)
        return address

    yield start
    for process in running:
        process.terminate()
    for process in running:
        assert process.wait(10) == 0


def launch(
    *options: str,
    namespace: str = "",
    program: tuple[str, str] = ("-m", "rqretry"),
    printed: Path = Path(os.devnull),
) -> tuple[str, "subprocess.Popen[bytes]"]:
    """A gateway, and where it is going to listen; `printed`: where its output goes."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, *program, "gateway", "--listen", address, *options]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    if namespace:
        environment["RQRETRY_NAMESPACE"] = namespace
    with printed.open("wb") as output:
        return address, subprocess.Popen(command, env=environment, stdout=output)


def wait_until_ready(address: str, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        assert process.poll() is None, "the gateway has ended"
        try:
            if probe(address)[0] == 200:
                return
        except OSError:
            time.sleep(0.02)
    raise AssertionError(f"no gateway answers at {address}")


def probe(address: str, path: str = "/readyz") -> tuple[int, str]:
    connection = http.client.HTTPConnection(address, timeout=5)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.fixture(scope="session")
def gateway(start_gateway: Callable[..., str]) -> str:
    """Where a gateway listens that creates topics and groups."""
    return start_gateway("--auto-create")


@asynccontextmanager
async def serving(url: str, *, create: bool) -> AsyncIterator[str]:
    """A gateway in this process."""
    async with AsyncClient(url, create_topics=create) as ours:
        gateway = Gateway(ours, AccessKeys({}), Terms(create=create))
        port = await gateway.serve("127.0.0.1:0")
        try:
            yield f"127.0.0.1:{port}"
        finally:
            await gateway.aclose()


@pytest.fixture
async def strict(redis_server: EmbeddedRedis) -> AsyncIterator[str]:
    """Where a gateway listens that creates nothing; in this process."""
    async with serving(redis_server.url, create=False) as address:
        yield address


@pytest.fixture
async def lenient(redis_server: EmbeddedRedis) -> AsyncIterator[str]:
    """The same, and it creates topics and groups."""
    async with serving(redis_server.url, create=True) as address:
        yield address


@pytest.fixture
def client(redis_server: EmbeddedRedis) -> Iterator[Client]:
    """Our own client of the same namespace."""
    with Client(redis_server.url) as made:
        yield made


@pytest.fixture
def official(rocketmq: ModuleType, gateway: str) -> Iterator[Official]:
    made = Official(rocketmq, gateway)
    yield made
    made.close()
