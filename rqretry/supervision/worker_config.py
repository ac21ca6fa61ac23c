"""What the worker processes of one command are told, and what is done once for all of them."""

import logging
from dataclasses import dataclass, field

from rqretry.app import App
from rqretry.catalog.catalog import Catalog
from rqretry.core.errors import ConfigError, RqretryError
from rqretry.core.worker_name import worker_name
from rqretry.observability.log_format import LogSettings
from rqretry.observability.trace_settings import TraceSettings
from rqretry.supervision.app_loader import load_app
from rqretry.transport.store_sync import SyncStore
from rqretry.worker.worker import apply_spec

log = logging.getLogger("rqretry")


@dataclass(frozen=True, slots=True)
class Orders:
    """What every child is told; picklable.

    Attributes:
        target: MODULE:APP.
        app_dir: Where MODULE is.
        url: The server; None for the app's own.
        namespace: None for the app's own.
        concurrency: Attempts at once per consumer; None for each consumer's own.
        grace: Seconds that running handlers get when the process stops.
        max_messages: It is replaced when it has finished so many; None for never.
        max_memory: It is replaced when it holds more bytes than this; None for never.
        explicit: Apply the settings that consumers name to their groups.
        logs: How it logs.
        tracing: Whether and how it traces; None for not at all.
        tallied: It counts and times its attempts, for the metrics port.
    """

    target: str
    app_dir: str
    url: str | None
    namespace: str | None
    concurrency: int | None
    grace: float
    max_messages: int | None = None
    max_memory: int | None = None
    explicit: bool = False
    logs: LogSettings = field(default_factory=LogSettings)
    tracing: TraceSettings | None = None
    tallied: bool = False


def load(orders: Orders) -> App:
    """Import the app. Raises ConfigError if it cannot be, or has no consumers."""
    app = load_app(orders.target, orders.app_dir)
    app.configure(orders.url, orders.namespace)
    if not app.consumers:
        raise ConfigError(
            f"{orders.target} has no consumers: register one with @app.consumer in a module that"
            f" {orders.target.partition(':')[0]} imports"
        )
    return app


def apply_settings(app: App) -> None:
    """What consumers name becomes their groups' truth: once, here, and never by a child."""
    settings = app.settings
    with SyncStore(settings.url, repeat_seconds=2.0) as store:
        catalog = Catalog(settings.namespace, settings.levels, worker_name())
        try:
            for spec in app.consumers:
                store.perform(apply_spec(catalog, spec, explicit=True))
        except ConfigError:
            raise
        except RqretryError as error:
            log.warning("%s; the workers keep trying", error)
