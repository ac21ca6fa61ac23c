"""What clients hold: leases that are renewed for them until they settle, or are gone.

A push consumer asks for that (auto_renew): it knows no visibility. It is renewed as long as its
client lives, here or at another gateway, and fails with cause `timeout` after consume_timeout, as
in a Python worker.
"""

import asyncio
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rqretry.core.catalog_records import GroupRecord
from rqretry.core.errors import InvalidReceiptHandle, RqretryError
from rqretry.core.message import Message, ReceiptHandle
from rqretry.gateway.clients import ConnectedClient
from rqretry.gateway.gateways import Gateways
from rqretry.gateway.operations import PushOperations, give_back
from rqretry.protocol.command import batches
from rqretry.protocol.keys import GroupKeys
from rqretry.protocol.lease import OK, renew
from rqretry.transport.store import Store

log = logging.getLogger("rqretry")

VISIBILITY_S = 30.0
CONSUME_TIMEOUT_S = 900.0
_HELD = 2
"""An ordered group is held so many times its consume_timeout: the handler may still run."""
_RENEW_EVERY_S = VISIBILITY_S / 3


@dataclass(eq=False, slots=True)
class Held:
    """One lease that a client works under."""

    client: ConnectedClient
    operations: PushOperations
    message: Message[Any]
    handle: ReceiptHandle
    since: float
    ends_at: float
    """When it fails, however often it was renewed."""


class Leases:
    """All that the clients of one process hold."""

    def __init__(self, store: Store, gateways: Gateways) -> None:
        self._store = store
        self._gateways = gateways
        self._held: dict[str, Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    def hold(
        self,
        client: ConnectedClient,
        operations: PushOperations,
        record: GroupRecord,
        messages: Iterable[Message[Any]],
    ) -> None:
        """Renew these from now on."""
        timeout = CONSUME_TIMEOUT_S * (_HELD if record.ordered else 1)
        since = time.monotonic()
        for message in messages:
            text = message.receipt_handle
            handle = ReceiptHandle.parse(text)
            self._held[text] = Held(client, operations, message, handle, since, since + timeout)

    def find(self, handle: str) -> Held | None:
        """What is held under a receipt handle."""
        return self._held.get(handle)

    def message(self, handle: str) -> Message[Any] | str:
        """The message that is held under a receipt handle; of what is not, the handle."""
        held = self._held.get(handle)
        return handle if held is None else held.message

    def drop(self, handles: Iterable[str]) -> None:
        """These are settled."""
        for handle in handles:
            self._held.pop(handle, None)

    async def release_all(self, client: ConnectedClient) -> None:
        """A client stops: what it has not settled is given back, uncounted."""
        held = [one for one in self._held.values() if one.client is client]
        self.drop([str(one.handle) for one in held])
        for one in held:
            await give_back(self._store, one.operations, [one.message], client.worker)

    async def keep_renewed(self) -> None:
        """Renew, for ever."""
        while True:
            await asyncio.sleep(_RENEW_EVERY_S)
            try:
                await self.renew_once(time.monotonic())
            except RqretryError as error:
                log.warning("leases could not be renewed, trying again: %s", error)

    async def renew_once(self, now: float) -> None:
        """Renew what is to be renewed; end what is past its time."""
        places: dict[GroupKeys, list[Held]] = {}
        for text, one in [*self._held.items()]:
            if not (one.client.alive or await self._gateways.knows(one.client.worker)):
                self._held.pop(text, None)  # its deadline counts a failed attempt
            elif now >= one.ends_at:
                self._held.pop(text, None)
                await self._time_out(one)
            else:
                keys = one.operations.keys_of(one.handle)
                places.setdefault(keys, []).append(one)
        sent = [(keys, batch) for keys, all_ in places.items() for batch in batches(all_)]
        visibility_ms = round(VISIBILITY_S * 1000)
        commands = [
            renew(keys, [one.handle.receipt for one in batch], visibility_ms=visibility_ms)
            for keys, batch in sent
        ]
        answers = await self._store.run_each(commands, self._store.patience) if commands else []
        for (_, batch), answer in zip(sent, answers, strict=True):
            if not isinstance(answer, Exception):
                lost = [h for h, v in zip(batch, answer, strict=True) if v != OK]
                self.drop([str(one.handle) for one in lost])

    async def _time_out(self, one: Held) -> None:
        reason = f"client {one.client.id} took longer than {CONSUME_TIMEOUT_S:g} s"
        try:
            failing = one.operations.fail((one.handle, one.message), "timeout", reason)
            await self._store.perform(failing)
        except InvalidReceiptHandle:
            pass  # it was settled through another gateway
        except RqretryError as error:
            log.warning("message %s is past its time and ends later: %s", one.handle.id, error)
