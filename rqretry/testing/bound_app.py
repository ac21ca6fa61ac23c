"""An app on the lab's server for a while, and back to its own afterwards."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from rqretry.app import App
from rqretry.core.errors import ConfigError
from rqretry.core.settings import Settings
from rqretry.testing.lab_clients import make_clients
from rqretry.testing.lab_stores import LabStore

_CHANGED = ("settings", "_given", "_client", "_async_client")
_bound: list[App] = []


class BoundApp:
    """Points an app to a lab; `release` gives it back everything it had.

    Raises:
        ConfigError: Another lab has the app.
    """

    def __init__(self, app: App, store: LabStore, namespace: str, numbers: Iterator[int]) -> None:
        if any(other is app for other in _bound):
            raise ConfigError(f"{app!r} is in a lab already; close that one first")
        for module in app.include:  # as a worker does
            import_module(module)
        self.app = app
        self._kept: dict[str, Any] = {name: getattr(app, name) for name in _CHANGED}
        _bound.append(app)
        levels = None if app.settings.levels is None else str(app.settings.levels)
        given = (str(store.url), namespace, levels)
        client, async_client = make_clients(store, namespace, numbers, levels)
        client.catalog.topics.declared = async_client.catalog.topics.declared = app.declared
        values = (Settings.read(*given), given, client, async_client)
        for name, value in zip(_CHANGED, values, strict=True):
            setattr(app, name, value)

    def release(self) -> None:
        """The app as it was."""
        for name, value in self._kept.items():
            setattr(self.app, name, value)
        _bound[:] = [other for other in _bound if other is not self.app]
