"""Clients of the lab. Their ids count up, so that a test runs in the same order every time.

What is due at the same millisecond runs in the order of ids, and a partition follows from the id.
"""

from collections.abc import Iterator
from typing import Any, TypeVar

from rqretry.catalog.catalog import Catalog
from rqretry.client import AsyncClient, Client
from rqretry.consumer.client_parts import ClientParts
from rqretry.core.message_id import make_id
from rqretry.core.parts import parts_of
from rqretry.producer.encode import Encoder
from rqretry.testing.lab_stores import LabAsyncStore, LabStore
from rqretry.transport.session import ServerClock
from rqretry.transport.store import Store
from rqretry.transport.store_sync import SyncStore

S = TypeVar("S", bound=Store | SyncStore)

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
        client = Client(url, **options)
        self._bring(parts_of(client), self._store)
        return client

    def async_client(self, url: str | None = None, **options: Any) -> AsyncClient:
        """A client for asyncio."""
        client = AsyncClient(url, **options)
        self._bring(parts_of(client), LabAsyncStore(self._store))
        return client

    def _bring(self, parts: ClientParts[S, Any], store: S) -> None:
        parts.catalog.chance.seed(_SEED)
        encoder = numbered(parts.catalog, store.clock, self._numbers)
        parts.use(store, encoder, chance=lambda: 0.5)
