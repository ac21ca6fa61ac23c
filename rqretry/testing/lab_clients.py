"""Clients of the lab. Their ids count up, so that a test runs in the same order every time.

What is due at the same millisecond runs in the order of ids, and a partition follows from the id.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rqretry.catalog.catalog import Catalog
from rqretry.client import AsyncClient, Client
from rqretry.core.catalog_records import TopicRecord
from rqretry.core.durations import Duration
from rqretry.producer.encode import partition_for
from rqretry.producer.lane import Publishing
from rqretry.producer.publisher import Publisher
from rqretry.producer.publisher_sync import SyncPublisher
from rqretry.protocol.command import Operation
from rqretry.protocol.publish import Prepared
from rqretry.testing.lab_stores import LabAsyncStore, LabStore
from rqretry.transport.session import ServerClock

_TIME_CHARACTERS = 7
"""The first 42 bits of an id, base 64: its time (ids.py)."""


class LabPublishing(Publishing):
    """Publishing, with a number in place of an id's random bits."""

    def __init__(self, catalog: Catalog, clock: ServerClock, numbers: Iterator[int]) -> None:
        super().__init__(catalog, clock)
        self._numbers = numbers

    def prepare(
        self, topic: str, bodies: Iterable[Any]
    ) -> Operation[Sequence[tuple[int, Prepared]]]:
        """Check and encode; see Publishing."""
        prepared = yield from super().prepare(topic, bodies)
        record = yield from self.catalog.topics.get(topic)
        return [self._numbered(record, *each) for each in prepared]

    def _numbered(
        self, topic: TopicRecord, partition: int, message: Prepared
    ) -> tuple[int, Prepared]:
        if message.digest:  # the caller gave the id
            return partition, message
        id_ = f"{message.id[:_TIME_CHARACTERS]}{next(self._numbers):09d}"
        numbered = message._replace(id=id_)
        return partition_for(numbered, topic.partitions), numbered


def make_clients(
    store: LabStore,
    namespace: str,
    numbers: Iterator[int],
    delay_levels: str | Sequence[Duration] | None = None,
) -> tuple[Client, AsyncClient]:
    """A client of each kind on the lab's server and clock."""
    url = str(store.url)
    client = Client(url, namespace=namespace, delay_levels=delay_levels, store=store)
    publishing = LabPublishing(client.catalog, store.clock, numbers)
    client._publishing = publishing  # noqa: SLF001 - only ids differ
    client.publisher = SyncPublisher(store, publishing)
    async_store = LabAsyncStore(store)
    async_client = AsyncClient(
        url, namespace=namespace, delay_levels=delay_levels, store=async_store
    )
    publishing = LabPublishing(async_client.catalog, store.clock, numbers)
    async_client._publishing = publishing  # noqa: SLF001
    async_client.publisher = Publisher(async_store, publishing)
    return client, async_client
