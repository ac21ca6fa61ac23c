"""Simple consumers, sync and asyncio, over the same operations."""

from collections.abc import Generator, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypedDict

from rqretry.catalog.catalog import Catalog
from rqretry.catalog.group_rules import group_settings
from rqretry.consumer.simple_operations import SimpleOperations
from rqretry.core.errors import InvalidArgument
from rqretry.core.limits import (
    LATEST,
    check_flag,
    check_group,
    check_source,
    check_start,
    check_tags,
)
from rqretry.protocol.command import awaitable, blocking
from rqretry.transport.store import Store
from rqretry.transport.store_sync import SyncStore


class SimpleConsumer:
    """Receive and ack without asyncio; see SimpleOperations for each verb."""

    def __init__(self, store: SyncStore, operations: SimpleOperations) -> None:
        self.store = store
        self.operations = operations
        store.perform(operations.join())

    receive = blocking(SimpleOperations.receive)
    ack = blocking(SimpleOperations.ack)
    change_invisible_duration = blocking(SimpleOperations.change_invisible_duration)

    def close(self) -> None:
        """Nothing is held here; what was received stays leased until its duration ends."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncSimpleConsumer:
    """Receive and ack with asyncio; see SimpleOperations for each verb.

    It joins its group at the first use; `await` it, or enter it, to join before that.
    """

    def __init__(self, store: Store, operations: SimpleOperations) -> None:
        self.store = store
        self.operations = operations

    receive = awaitable(SimpleOperations.receive)
    ack = awaitable(SimpleOperations.ack)
    change_invisible_duration = awaitable(SimpleOperations.change_invisible_duration)

    async def join(self) -> Self:
        """Subscribe now. Raises GroupNotFound, TopicNotFound."""
        await self.store.perform(self.operations.join())
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        return self.join().__await__()

    async def aclose(self) -> None:
        """Nothing is held here; what was received stays leased until its duration ends."""

    async def __aenter__(self) -> Self:
        return await self.join()

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


class SimpleConsumerOptions(TypedDict, total=False):
    """The options of `simple_consumer`.

    Attributes:
        create_group: Create the group if it is not there; default False.
        max_retries: At most max_retries + 1 deliveries; default the group's own.
        tags: What the group takes of these topics from now on, such as "a || b"; "*" for
            everything. Default as it was.
        ordered: Whether the group gets one message of a message group at a time, in order; it
            never changes. Default as the group is; a new one is not.
        start: Where the group begins in a topic that is new to it: "latest" (what is published
            from then on, the default) or "earliest" (what is still stored, too).
    """

    create_group: bool
    max_retries: int | str | None
    tags: str | None
    ordered: bool | None
    start: Literal["latest", "earliest"]


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
    start: str = LATEST,
) -> SimpleOperations:
    """Check what a simple consumer is asked for.

    Raises:
        InvalidArgument: A name or an option is outside its limits, or there is no topic.
    """
    names = [topics] if isinstance(topics, str) else list(topics)
    if not names:
        raise InvalidArgument("topics: a simple consumer needs at least one topic")
    settings = group_settings(max_retries, None)
    if tags is not None:
        settings["tags"] = check_tags(tags)
    if ordered is not None:
        settings["ordered"] = check_flag("ordered", ordered)
    return SimpleOperations(
        catalog,
        check_group(group),
        [check_source(name) for name in names],
        worker=name,
        create_group=create_group,
        start=check_start(start),
        settings=settings,
    )
