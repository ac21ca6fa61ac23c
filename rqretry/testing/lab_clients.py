"""Clients of the lab. Their ids count up, so that a test runs in the same order every time.

What is due at the same millisecond runs in the order of ids, and a partition follows from the id.
"""

from collections.abc import Iterator, Sequence

from rqretry.catalog.catalog import Catalog
from rqretry.client import AsyncClient, Client
from rqretry.core.durations import Duration
from rqretry.core.message_id import make_id
from rqretry.producer.encode import Encoder
from rqretry.producer.publisher import Publisher
from rqretry.producer.publisher_sync import SyncPublisher
from rqretry.testing.lab_stores import LabAsyncStore, LabStore
from rqretry.transport.session import ServerClock

_TIME_CHARACTERS = 7
"""The first 42 bits of an id, base 64: its time."""


def numbered(catalog: Catalog, clock: ServerClock, numbers: Iterator[int]) -> Encoder:
    """An encoder with a number in place of an id's random bits."""

    def one(now_ms: int) -> str:
        return f"{make_id(now_ms)[:_TIME_CHARACTERS]}{next(numbers):09d}"

    def many(count: int, now_ms: int) -> list[str]:
        return [one(now_ms) for _ in range(count)]

    return Encoder(catalog, clock, one, many)


def make_clients(
    store: LabStore,
    namespace: str,
    numbers: Iterator[int],
    delay_levels: str | Sequence[Duration] | None = None,
) -> tuple[Client, AsyncClient]:
    """A client of each kind on the lab's server and clock."""
    url = str(store.url)
    client = Client(url, namespace=namespace, delay_levels=delay_levels, store=store)
    client.encoder = numbered(client.catalog, store.clock, numbers)
    client.publisher = SyncPublisher(store, client.encoder)
    async_store = LabAsyncStore(store)
    async_client = AsyncClient(
        url, namespace=namespace, delay_levels=delay_levels, store=async_store
    )
    async_client.encoder = numbered(async_client.catalog, store.clock, numbers)
    async_client.publisher = Publisher(async_store, async_client.encoder)
    return client, async_client
