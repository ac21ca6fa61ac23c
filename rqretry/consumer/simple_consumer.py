"""Simple consumers, sync and asyncio, over the same operations."""

from collections.abc import Generator, Sequence
from typing import Any, Self, TypedDict

from rqretry.catalog.catalog import Catalog
from rqretry.catalog.group_rules import group_settings
from rqretry.consumer.simple_operations import SimpleOperations
from rqretry.core.closing import AsyncClosing, Closing
from rqretry.core.errors import InvalidArgument
from rqretry.core.limits import (
    MAX_POSTPONES,
    check_count,
    check_flag,
    check_group,
    check_source,
    check_tags,
)
from rqretry.core.start import Start, check_start
from rqretry.protocol.command import SyncPerformer
from rqretry.protocol.facade import AsyncFacade, SyncFacade, Verb


class _Verbs:
    receive = Verb(SimpleOperations.receive)
    ack = Verb(SimpleOperations.ack)
    change_invisible_duration = Verb(SimpleOperations.change_invisible_duration)
    release = Verb(SimpleOperations.release)


class SimpleConsumer(_Verbs, SyncFacade[SimpleOperations], Closing):
    """Receives and acknowledges without asyncio; made by `Client.simple_consumer`.

    `close` gives nothing back: what was received stays leased until its duration ends.
    """

    def __init__(self, store: SyncPerformer, operations: SimpleOperations) -> None:
        super().__init__(store, operations)
        store.perform(operations.join())


class AsyncSimpleConsumer(_Verbs, AsyncFacade[SimpleOperations], AsyncClosing):
    """The methods of SimpleConsumer, awaited; made by `AsyncClient.simple_consumer`.

    It joins its group at the first use; `await` it, or enter it, to join before that. `aclose`
    gives nothing back: what was received stays leased until its duration ends.
    """

    async def join(self) -> Self:
        """Subscribe now. Raises GroupNotFound, TopicNotFound."""
        await self._parts.store.perform(self._parts.operations.join())
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        return self.join().__await__()

    async def __aenter__(self) -> Self:
        return await self.join()


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
            from then on, the default), "earliest" (what is still stored, too) or a time (an aware
            datetime, or seconds since the epoch: also what was consumed since then, where that is
            kept).
        max_postpones: How often one message may be released; default 1000.
    """

    create_group: bool
    max_retries: int | str | None
    tags: str | None
    ordered: bool | None
    start: Start
    max_postpones: int


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
    names = [topics] if isinstance(topics, str) else list(topics)
    if not names:
        raise InvalidArgument("topics: a simple consumer needs at least one topic")
    settings = group_settings(max_retries, None) | {"create": create_group}
    if tags is not None:
        settings["tags"] = check_tags(tags)
    if ordered is not None:
        settings["ordered"] = check_flag("ordered", ordered)
    checked, sources = check_group(group), [check_source(name) for name in names]
    settings["start"] = check_start(start)
    most = check_count(max_postpones, name="max_postpones", minimum=0)
    return SimpleOperations(catalog, checked, sources, name, settings, most)
