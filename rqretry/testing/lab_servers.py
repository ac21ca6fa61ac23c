"""Where a lab keeps its data: a private real Redis, or fakeredis."""

from importlib import import_module

from rqretry.core.errors import ConfigError, refuse
from rqretry.testing.clock import virtual_time
from rqretry.testing.embedded_redis import find_server
from rqretry.testing.lab_stores import LabStore

REDIS, FAKEREDIS = "redis", "fakeredis"


def choose(name: str | None) -> str:
    """The server to use: the one that is named; else a real Redis if this machine has one.

    Raises:
        InvalidArgument: The name is neither "redis" nor "fakeredis".
    """
    if name is None:
        try:
            find_server()
        except ConfigError:
            return FAKEREDIS
        return REDIS
    if name not in (REDIS, FAKEREDIS):
        refuse("server", name, 'must be "redis" or "fakeredis"')
    return name


def fake_store() -> LabStore:
    """A store on a fakeredis of its own. Raises ConfigError if that is not installed."""
    try:
        module = import_module("rqretry.testing.fakeredis_store")
        import_module("lupa")
    except ImportError as error:
        raise ConfigError(
            "fakeredis with Lua is not installed: pip install 'rqretry[testing]', or use a real"
            " Redis (--rqretry-lab=redis)"
        ) from error
    store: LabStore = module.FakeStore(virtual_time())
    return store
