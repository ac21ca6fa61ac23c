"""Simple consumers, sync and asyncio, over the same operations."""

from collections.abc import Generator
from typing import Any, Self

from rqretry.consumer.simple_operations import SimpleOperations
from rqretry.core.closing import AsyncClosing, Closing
from rqretry.core.public_call import hinted
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

    Raises:
        InvalidArgument: Of every call: a value is outside its limits.
        StoreUnavailable: Of every call: the server does not answer, for the client's `timeout`.
    """

    def __init__(self, store: SyncPerformer, operations: SimpleOperations) -> None:
        super().__init__(store, operations)
        store.perform(operations.join())


class AsyncSimpleConsumer(_Verbs, AsyncFacade[SimpleOperations], AsyncClosing):
    """The methods of SimpleConsumer, awaited; made by `AsyncClient.simple_consumer`.

    It joins its group at the first use; `await` it, or enter it, to join before that. `aclose`
    gives nothing back: what was received stays leased until its duration ends.
    """

    @hinted
    async def join(self) -> Self:
        """Subscribe now. Raises GroupNotFound, TopicNotFound."""
        await self._parts.store.perform(self._parts.operations.join())
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        return self.join().__await__()

    @hinted
    async def __aenter__(self) -> Self:
        return await self.join()
