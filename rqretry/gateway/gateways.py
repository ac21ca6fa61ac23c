"""The gateways of a namespace: each that has an address says among the workers that it lives.

Routes name all of them, and a client that left this one may be connected to another.
"""

import asyncio
import json
import os
import time
from contextlib import suppress
from typing import Any

from rqretry.core.errors import RqretryError
from rqretry.core.worker_info import groups_of
from rqretry.gateway.protocol import endpoints_of, v2
from rqretry.protocol.keys import NamespaceKeys
from rqretry.protocol.maintain import LiveWorker, live_workers, register
from rqretry.transport.store import Store

Address = tuple[str, int]
_REGISTER_EVERY_S, _TTL_MS = 5.0, 15_000
_LOOK_EVERY_S = 5.0
_GOODBYE_S = 1.0


class Gateways:
    """This gateway among the others.

    Args:
        store: Of the namespace.
        keys: Of the namespace.
        own: Where clients are to reach this gateway; None: as they have, and nobody else is named.
    """

    def __init__(self, store: Store, keys: NamespaceKeys, own: Address | None) -> None:
        self._store = store
        self._keys = keys
        self._own = own
        self._workers: list[LiveWorker] = []
        self._looked_at = -_LOOK_EVERY_S

    async def endpoints(self) -> list[Any]:
        """Where clients reach gateways, this one first; empty: as they have reached it.

        Addresses of one kind are one: a client takes the next when the first does not answer.
        """
        if self._own is None:
            return []
        named = [groups_of(worker.about).facts.get("gateway") for worker in await self._live()]
        others = {_address(str(text)) for text in named if text} - {self._own}
        found = [endpoints_of(*address) for address in (self._own, *sorted(others))]
        if found[0].scheme == v2.AddressScheme.DOMAIN_NAME:
            return [one for one in found if one.scheme == found[0].scheme]
        for other in found[1:]:
            if other.scheme == found[0].scheme:
                found[0].addresses.extend(other.addresses)
        return found[:1]

    async def knows(self, client: str) -> bool:
        """Whether a client, by its name among the workers, is connected to any of them."""
        return any(worker.name == client for worker in await self._live())

    async def keep_registered(self) -> None:
        """Say that this gateway lives, for ever."""
        while self._own is not None:
            await self._register(_TTL_MS)
            await asyncio.sleep(_REGISTER_EVERY_S)

    async def unregister(self) -> None:
        """This gateway ends."""
        if self._own is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_GOODBYE_S):
                    await self._register(0)

    async def _register(self, ttl_ms: int) -> None:
        assert self._own is not None
        address = "{}:{}".format(*self._own)
        about = {"groups": [], "topics": [], "pid": os.getpid(), "gateway": address}
        name = f"gateway-{address}-{os.getpid()}"
        command = register(self._keys, worker=name, about=json.dumps(about), ttl_ms=ttl_ms)
        with suppress(RqretryError):
            await self._store.run(command)

    async def _live(self) -> list[LiveWorker]:
        """All live workers, some seconds old at most while Redis answers."""
        now = time.monotonic()
        if now >= self._looked_at + _LOOK_EVERY_S:
            self._looked_at = now
            with suppress(RqretryError):
                self._workers = await self._store.perform(live_workers(self._keys))
        return self._workers


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host, int(port)
