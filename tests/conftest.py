"""Private Redis servers: each is started once per test process, on a unix socket, when needed."""

import os
import signal
from collections.abc import Callable, Iterator

import pytest
import redis

from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.support.servers import SERVERS, ServerBinary, binary_of, start

SLOW_FOLDERS = (
    "spark", "cluster", "sentinel", "production", "demo", "packaging", "chaos", "benchmarks",
)  # fmt: skip


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So a shell starts what it puts in the background, and then what a test starts ignores Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--server redis-7`: quick feedback from one server."""
    parser.addoption("--server", choices=list(SERVERS), help="leave out all other servers")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes long comes first, so that at the end no process waits for another one."""
    wanted = config.getoption("--server")
    if wanted:
        items[:] = [item for item in items if _server_of(item) in {None, wanted}]
    items.sort(key=lambda item: item.path.parent.name not in SLOW_FOLDERS)


def _server_of(item: pytest.Item) -> object:
    """The server that a test is made for; None for one that chooses for itself."""
    call = getattr(item, "callspec", None)
    if call is None:
        return None
    named = (value for value in call.params.values() if value in list(SERVERS))
    return call.params.get("backend", next(named, None))


ServerOf = Callable[..., EmbeddedRedis]


@pytest.fixture(scope="session")
def server_of() -> Iterator[ServerOf]:
    """A function from a name in SERVERS to a running server, shared by the whole process."""
    running: dict[tuple[str, bool, bool], EmbeddedRedis] = {}

    def server(name: str, *, cluster: bool = False, appendonly: bool = False) -> EmbeddedRedis:
        key = (name, cluster, appendonly)
        if key not in running:
            running[key] = start(program(name), cluster=cluster, appendonly=appendonly)
        return running[key]

    yield server
    for embedded in running.values():
        embedded.stop()


@pytest.fixture(params=list(SERVERS))
def server(request: pytest.FixtureRequest, server_of: ServerOf) -> EmbeddedRedis:
    """An empty server of each supported generation."""
    return emptied(server_of(request.param))


def program(name: str) -> ServerBinary:
    """The server of this name; where this machine lacks it, the test is skipped, in CI failed."""
    found = binary_of(name)
    if found is None:
        missing(f"there is no server for {name} ({SERVERS[name]}) here")
    assert found is not None
    return found


def missing(reason: str) -> None:
    """Skip for this reason; in CI, where everything must be there, fail."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def emptied(server: EmbeddedRedis) -> EmbeddedRedis:
    """The server without any data and with its settings as at the start."""
    with redis.Redis(unix_socket_path=str(server.socket_path)) as client:
        client.flushall()
        client.config_set("maxmemory", 0)
    return server
