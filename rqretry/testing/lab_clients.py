"""Clients of the lab. Their ids count up, so that a test runs in the same order every time.

What is due at the same millisecond runs in the order of ids, and a partition follows from the id.
"""

from collections.abc import Iterator
from typing import Any

from rqretry.admin.context import AdminContext
from rqretry.catalog.catalog import Catalog
from rqretry.client import Admin, AsyncAdmin, AsyncClient, Client
from rqretry.core.message_id import make_id
from rqretry.producer.encode import Encoder
from rqretry.producer.publisher import Publisher
from rqretry.producer.publisher_sync import SyncPublisher
from rqretry.testing.lab_stores import LabAsyncStore, LabStore
from rqretry.transport.session import ServerClock

_TIME_CHARACTERS = 7
"""The first 42 bits of an id, base 64: its time."""
_SEED = 1
"""Where simple consumers begin, in every run."""


def numbered(catalog: Catalog, clock: ServerClock, numbers: Iterator[int]) -> Encoder:
    """An encoder with a number in place of an id's random bits."""

    def one(now_ms: int) -> str:
        return f"{make_id(now_ms)[:_TIME_CHARACTERS]}{next(numbers):09d}"

    def many(count: int, now_ms: int) -> list[str]:
        return [one(now_ms) for _ in range(count)]

    return Encoder(catalog, clock, one, many)


class LabClients:
    """Makes clients of each kind on the lab's server and clock; the arguments are those of Client.

    An app closes its clients at the end of each run, and has new ones made for the next.
    """

    def __init__(self, store: LabStore, numbers: Iterator[int]) -> None:
        self._store, self._numbers = store, numbers

    def client(self, url: str | None = None, **options: Any) -> Client:
        """A client without asyncio."""
        client = Client(url, store=self._store, **options)
        client.catalog.chance.seed(_SEED)
        client.encoder = numbered(client.catalog, self._store.clock, self._numbers)
        client.publisher = SyncPublisher(self._store, client.encoder)
        operator = AdminContext(client.catalog, client.name, chance=lambda: 0.5)
        client.admin = Admin(self._store, operator)
        return client

    def async_client(self, url: str | None = None, **options: Any) -> AsyncClient:
        """A client for asyncio."""
        store = LabAsyncStore(self._store)
        client = AsyncClient(url, store=store, **options)
        client.catalog.chance.seed(_SEED)
        client.encoder = numbered(client.catalog, self._store.clock, self._numbers)
        client.publisher = Publisher(store, client.encoder)
        operator = AdminContext(client.catalog, client.name, chance=lambda: 0.5)
        client.admin = AsyncAdmin(store, operator)
        return client
