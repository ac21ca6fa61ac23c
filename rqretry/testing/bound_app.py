"""An app on the lab's server for a while, and back to its own afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from rqretry.app import App, AppClients
from rqretry.core.errors import ConfigError
from rqretry.core.parts import parts_of
from rqretry.testing.lab_clients import LabClients
from rqretry.testing.lab_stores import LabStore

_bound: list[App] = []


@contextmanager
def bound(app: App, store: LabStore, namespace: str, numbers: Iterator[int]) -> Iterator[None]:
    """Points an app to a lab, and gives it back everything it had.

    Raises:
        ConfigError: Another lab has the app.
    """
    if any(other is app for other in _bound):
        raise ConfigError(f"{app!r} is in a lab already; close that one first")
    parts = parts_of(app)
    for module in parts.include:  # as a worker does
        import_module(module)
    kept = parts.clients
    _bound.append(app)
    try:
        levels = None if parts.settings.levels is None else str(parts.settings.levels)
        clients = LabClients(store, numbers)
        kinds = clients.client, clients.async_client
        parts.clients = AppClients((str(store.url), namespace, levels), kinds)
        yield
    finally:
        parts.clients = kept
        _bound[:] = [other for other in _bound if other is not app]
