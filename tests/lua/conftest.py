"""The script suite runs on every server, on fakeredis, and on a cluster with keys checked."""

from collections.abc import Iterator
from functools import cache

import pytest

from rqretry.protocol.scripts import ScriptLibrary
from tests.conftest import ServerOf
from tests.support import lua_hooks
from tests.support.backends import Backend, fake_backend, server_backend
from tests.support.world import World

BACKENDS = ["valkey-8", "redis-7", "redis-6.2", "fakeredis", "cluster"]

# Composed once, so that every test finds its scripts on the server.
virtual_time = cache(lua_hooks.virtual_time)
declared_keys = cache(lua_hooks.virtual_time_declared_keys)
counted = cache(lua_hooks.counted)
cut = cache(lua_hooks.cut)
cut_writes = cache(lua_hooks.cut_writes)
refused = cache(lua_hooks.refused)


@pytest.fixture(scope="session", params=BACKENDS)
def backend(request: pytest.FixtureRequest, server_of: ServerOf) -> Iterator[Backend]:
    """Each way to run the scripts."""
    yield from open_backend(request.param, server_of)


def open_backend(name: str, server_of: ServerOf) -> Iterator[Backend]:
    """One way to run the scripts."""
    if name == "fakeredis":
        backend = fake_backend(virtual_time())
    elif name == "cluster":
        url = server_of("redis-7", cluster=True).url
        backend = server_backend(name, url, declared_keys(), clock_in_slot=True)
    else:
        backend = server_backend(name, server_of(name).url, virtual_time())
    yield backend
    backend.close()


@pytest.fixture
def world(backend: Backend) -> Iterator[World]:
    """An empty partition without groups; at the end of the test it must be sound."""
    world = World(backend)
    yield world
    if not world.damaged:
        assert world.findings() == []


@cache
def _backend(url: str, name: str, library: ScriptLibrary) -> Backend:
    return server_backend(name, url, library)


def world_on(server_of: ServerOf, name: str, library: ScriptLibrary) -> World:
    """An empty partition on a real server with scripts of the test's choice."""
    return World(_backend(server_of(name).url, name, library))
