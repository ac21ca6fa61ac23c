"""An app on the lab's server for a while, and back to its own afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from rqretry.app import App
from rqretry.core.errors import ConfigError
from rqretry.core.settings import Settings
from rqretry.testing.lab_clients import LabClients
from rqretry.testing.lab_stores import LabStore

_CHANGED = ("settings", "_given", "_client", "_async_client", "_kinds")
_bound: list[App] = []


@contextmanager
def bound(app: App, store: LabStore, namespace: str, numbers: Iterator[int]) -> Iterator[None]:
    """Points an app to a lab, and gives it back everything it had.

    Raises:
        ConfigError: Another lab has the app.
    """
    if any(other is app for other in _bound):
        raise ConfigError(f"{app!r} is in a lab already; close that one first")
    for module in app.include:  # as a worker does
        import_module(module)
    kept = [getattr(app, name) for name in _CHANGED]
    _bound.append(app)
    try:
        levels = None if app.settings.levels is None else str(app.settings.levels)
        given = (str(store.url), namespace, levels)
        clients = LabClients(store, numbers)
        kinds = clients.client, clients.async_client
        _set(app, [Settings.read(*given), given, None, None, kinds])
        yield
    finally:
        _set(app, kept)
        _bound[:] = [other for other in _bound if other is not app]


def _set(app: App, values: list[object]) -> None:
    for name, value in zip(_CHANGED, values, strict=True):
        setattr(app, name, value)
