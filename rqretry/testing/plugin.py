"""The pytest plugin: fixtures `lab`, `lab_redis`, `lab_fakeredis`; option --rqretry-lab.

Nothing is imported or started until a test asks for a fixture.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

_SERVERS = ("redis", "fakeredis")
_MARKER = "rqretry_lab"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option that chooses the server of the fixture `lab`."""
    parser.getgroup("rqretry").addoption(
        "--rqretry-lab",
        choices=_SERVERS,
        default=None,
        help="where the fixture lab runs: a private real Redis, or fakeredis; default a real one"
        " where this machine has it",
    )


def pytest_configure(config: pytest.Config) -> None:
    """The marker that does the same for one test."""
    config.addinivalue_line(
        "markers", f'{_MARKER}(server): run the fixture lab on "redis" or "fakeredis"'
    )


@pytest.fixture(scope="session")
def _rqretry_lab_redis() -> Iterator[Any]:
    """One private server for the whole session; each lab has a namespace of its own."""
    with import_module("rqretry.testing.embedded_redis").EmbeddedRedis() as server:
        yield server


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A Lab: see docs/testing.md.

    The server is, in this order: the parameter (`parametrize("lab", ["redis", "fakeredis"],
    indirect=True)`), the marker `rqretry_lab`, the option --rqretry-lab, a real Redis if this
    machine has one, fakeredis.
    """
    marker = request.node.get_closest_marker(_MARKER)
    name = marker.args[0] if marker and marker.args else request.config.getoption("--rqretry-lab")
    yield from _lab(request, getattr(request, "param", name))


@pytest.fixture
def lab_redis(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A Lab on a private real Redis."""
    yield from _lab(request, "redis")


@pytest.fixture
def lab_fakeredis(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A Lab on fakeredis."""
    yield from _lab(request, "fakeredis")


def _lab(request: pytest.FixtureRequest, name: str | None) -> Iterator[Any]:
    chosen: Any = import_module("rqretry.testing.lab_servers").choose(name)
    if chosen == "redis":
        chosen = request.getfixturevalue("_rqretry_lab_redis")
    with import_module("rqretry.testing").Lab(server=chosen) as lab:
        yield lab
