"""What a client is made of, for those that work with more of it than users see."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from rqretry.admin.context import AdminContext
from rqretry.catalog.catalog import Catalog
from rqretry.catalog.group_rules import group_settings
from rqretry.consumer.options import SimpleConsumerOptions
from rqretry.consumer.simple_operations import SimpleOperations
from rqretry.consumer.transaction_checker import Checkers
from rqretry.core.limits import (
    MAX_POSTPONES,
    check_count,
    check_flag,
    check_group,
    check_options,
    check_sources,
    check_tags,
)
from rqretry.core.settings import Settings
from rqretry.core.start import Start, check_start
from rqretry.core.worker_name import worker_name
from rqretry.observability import observer
from rqretry.producer.cancel import recall
from rqretry.producer.encode import Encoder
from rqretry.protocol.command import Operation
from rqretry.transport.store import Store
from rqretry.transport.store_sync import SyncStore

S = TypeVar("S", bound=Store | SyncStore)
P = TypeVar("P")


class ClientParts(Generic[S, P]):
    """The parts, with asyncio and without it.

    Attributes:
        settings: The server, the namespace and its level table.
        name: What this client is called where it leaves its name.
        store: The connections.
        catalog: Topics and groups.
        encoder: What makes messages of bodies.
        publisher: What publishes them.
        operator: Who its `admin` is.
        checkers: The terms of transactions, for each producer group.
    """

    def __init__(self, settings: Settings, store: S, publishing: Callable[[S, Encoder], P]) -> None:
        self.settings = settings
        self.name = worker_name()
        self.checkers = Checkers()
        self.catalog = Catalog(settings.namespace, settings.levels, self.name)
        self._publishing = publishing
        self.use(store)

    def use(
        self, store: S, encoder: Encoder | None = None, chance: Callable[[], float] | None = None
    ) -> None:
        """Work on this store."""
        self.store = store
        observer.use_server(self.settings.namespace, store.url)
        self.encoder = encoder or Encoder(self.catalog, store.clock)
        self.publisher = self._publishing(store, self.encoder)
        self.operator = AdminContext(self.catalog, self.name, chance)

    def recall(self, id_: str, topic: str | None) -> Operation[bool]:
        """See Client.recall."""
        return recall(self.catalog, id_, topic, worker=self.name)

    def receiver(
        self, topics: str | Sequence[str], group: str, options: SimpleConsumerOptions
    ) -> SimpleOperations:
        """What a new simple consumer does. Raises InvalidArgument."""
        check_options(options, SimpleConsumerOptions, "simple consumer option")
        return simple_operations(self.catalog, self.name, topics, group, **options)


def simple_operations(
    catalog: Catalog,
    name: str,
    topics: str | Sequence[str],
    group: str,
    *,
    create_group: bool = False,
    max_retries: int | str | None = None,
    tags: str | None = None,
    ordered: bool | None = None,
    start: Start = "latest",
    max_postpones: int = MAX_POSTPONES,
) -> SimpleOperations:
    """Check what a simple consumer is asked for.

    Raises:
        InvalidArgument: A name or an option is outside its limits, or there is no topic.
    """
    wanted = check_flag("create_group", create_group)
    settings = group_settings(max_retries, None) | {"create": wanted}
    if tags is not None:
        settings["tags"] = check_tags(tags)
    if ordered is not None:
        settings["ordered"] = check_flag("ordered", ordered)
    checked, sources = check_group(group), check_sources(topics)
    settings["start"] = check_start(start)
    most = check_count(max_postpones, name="max_postpones", minimum=0)
    return SimpleOperations(catalog, checked, sources, name, settings, most)
