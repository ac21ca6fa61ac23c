"""The clients that are connected: what each of them is, when it was last heard, and its stream."""

import asyncio
import json
import math
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from rqretry.core.errors import RqretryError
from rqretry.gateway.codes import Code, Refused
from rqretry.protocol.command import batches
from rqretry.protocol.keys import NamespaceKeys
from rqretry.protocol.maintain import register
from rqretry.transport.store import Store

ALIVE_S = 30.0
"""A client that was not heard for so long is gone; all of them send heartbeats every 10 s."""
ROSTER_EVERY_S = 7.5
_ROSTER_TTL_MS = 15_000
_LAST_CALL_S = 1.0
_GATHER_S = 0.1
"""For so long those that connect are gathered, before they are registered."""
_MOST_CLIENTS = 50_000
_LONGEST_NAME = 120


@dataclass(eq=False, slots=True)
class ConnectedClient:
    """One client, by the id that it sends with every call."""

    id: str
    kind: str = ""
    """"push", "simple" or "producer"; "" before it says so."""
    groups: set[str] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)
    expressions: dict[tuple[str, str], str] = field(default_factory=dict)
    """The tags that it takes, by group and topic."""
    seen_at: float = 0.0
    registered_at: float = -math.inf
    streams: list["asyncio.Queue[Any]"] = field(default_factory=list)
    """What it is to be sent on its telemetry streams; the newest is the last."""
    worker: str = field(init=False)
    """Its name in histories and records."""

    def __post_init__(self) -> None:
        name = "".join(c if c.isalnum() or c in "-_.:@" else "-" for c in self.id)
        self.worker = name[:_LONGEST_NAME]

    @property
    def alive(self) -> bool:
        """Whether it was heard lately, or has a stream open."""
        return bool(self.streams) or time.monotonic() < self.seen_at + ALIVE_S


class Clients:
    """The clients of one gateway process, and their entries among the live workers."""

    def __init__(self, store: Store, keys: NamespaceKeys) -> None:
        self._store = store
        self._keys = keys
        self._known: dict[str, ConnectedClient] = {}
        self._news = asyncio.Event()

    def __iter__(self) -> Iterator[ConnectedClient]:
        return iter([*self._known.values()])

    def __len__(self) -> int:
        return len(self._known)

    def heard(self, id_: str) -> ConnectedClient:
        """The client that calls. Raises Refused if it has no id, or there are too many."""
        if not id_:
            raise Refused(Code.CLIENT_ID_REQUIRED, "the call has no x-mq-client-id")
        found = self._known.get(id_)
        if found is None:
            if len(self._known) >= _MOST_CLIENTS:
                raise Refused(Code.TOO_MANY_REQUESTS, f"{_MOST_CLIENTS} clients are connected")
            found = self._known[id_] = ConnectedClient(id_)
            self._news.set()
        found.seen_at = time.monotonic()
        return found

    def producers_of(self, topic: str) -> list[ConnectedClient]:
        """Those that publish to a topic and can be asked about its transactions."""
        return [
            c for c in self if c.kind == "producer" and topic in c.topics and c.streams and c.alive
        ]

    async def forget(self, client: ConnectedClient) -> None:
        """It says goodbye."""
        self._known.pop(client.id, None)
        await self._register([client], 0)

    async def keep_registered(self) -> None:
        """Renew the entries of those that live, for ever, and drop the others."""
        while True:
            for client in self:
                if not client.alive:
                    del self._known[client.id]
            now = time.monotonic()
            due = [c for c in self if c.groups and now >= c.registered_at + ROSTER_EVERY_S]
            for some in batches(due):
                await self._register(some, _ROSTER_TTL_MS)
                for client in some:
                    client.registered_at = now
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(ROSTER_EVERY_S / 2):
                    await self._news.wait()
            await asyncio.sleep(_GATHER_S)

    async def unregister(self) -> None:
        """Take all of them out: this gateway ends."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_CALL_S):
                await self._register(self, 0)

    async def _register(self, clients: Iterable[ConnectedClient], ttl_ms: int) -> None:
        commands = [
            register(self._keys, worker=client.worker, about=_about(client), ttl_ms=ttl_ms)
            for client in clients
        ]
        with suppress(RqretryError):
            await self._store.run_each(commands, 0.0) if commands else None


def _about(client: ConnectedClient) -> str:
    return json.dumps({
        "groups": sorted(client.groups),
        "topics": sorted(client.topics),
        "pid": None,
        "tags": [(*place, tags) for place, tags in sorted(client.expressions.items())],
    })  # fmt: skip
