"""One group in one topic: its long polls, all served by one reader.

However many clients wait, one call at a time leases, and one connection waits for a wake-up.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

from rqretry.catalog.catalog import Catalog
from rqretry.consumer.simple_operations import SimpleOperations
from rqretry.core.catalog_records import BROADCAST, PUSH, SIMPLE, GroupRecord
from rqretry.core.delay_levels import LevelTable
from rqretry.core.errors import ConfigError, GroupNotFound, RqretryError, show
from rqretry.core.limits import DLQ, MAX_POSTPONES
from rqretry.core.message import Message, ReceiptHandle
from rqretry.gateway.clients import ConnectedClient
from rqretry.gateway.codes import Code, Refused
from rqretry.gateway.operations import PushOperations, give_back
from rqretry.protocol.command import Block, Command
from rqretry.transport.store import Store

log = logging.getLogger("rqretry")

MOST_POLLS = 10_000
"""Long polls that one process holds open; further ones are refused."""
_MOST_ENDED = 4
"""So many ends of polls are kept for each that waits, before the others are dropped."""
_RECORD_S = 5.0
"""For how long a group's settings are remembered."""


@dataclass(eq=False, slots=True)
class Poll:
    """One receive that waits."""

    client: ConnectedClient
    most: int
    duration_ms: int
    until: float
    answer: "asyncio.Future[list[Message[Any]]]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class GroupReader:
    """Leases for all clients that wait for one group in one topic."""

    def __init__(self, store: Store, operations: SimpleOperations) -> None:
        self.operations = operations
        self._store = store
        self._polls: OrderedDict[Poll, None] = OrderedDict()
        """Those that wait, the oldest first."""
        self._ends: list[tuple[float, int, Poll]] = []
        """A heap of when they end; some of them wait no longer."""
        self._number = count()
        self._task: asyncio.Task[None] | None = None
        self._block: asyncio.Task[str | None] | None = None
        self._asked = asyncio.Event()
        self._wake_up: str | None = None
        """The key that ended the last wait."""

    def __len__(self) -> int:
        return len(self._polls)

    async def receive(self, poll: Poll) -> list[Message[Any]]:
        """What there is for it, at once or before it ends; possibly nothing."""
        self._polls[poll] = None
        poll.answer.add_done_callback(lambda _: self._polls.pop(poll, None))
        if len(self._ends) > _MOST_ENDED * (len(self._polls) + 1):
            self._ends = [end for end in self._ends if end[2] in self._polls]
            heapify(self._ends)
        heappush(self._ends, (poll.until, next(self._number), poll))
        self._asked.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._serve())
        return await poll.answer

    async def aclose(self) -> None:
        """Answer those that wait with nothing."""
        for poll in [*self._polls]:
            if not poll.answer.done():
                poll.answer.set_result([])
        tasks = [task for task in (self._task, self._block) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self) -> None:
        full, found, again_s = False, list[Message[Any]](), 0.0
        while self._polls:
            self._asked.clear()
            poll = next(iter(self._polls))
            try:
                found, again_s = [], 0.0
                if not poll.answer.done():
                    found, again_s = await self._look(poll)
            except Exception as error:  # noqa: BLE001 - everybody who waits gets it
                self._fail(error)
                continue
            full = len(found) >= poll.most
            if found or poll.answer.done():
                self._polls.pop(poll, None)
                self._hand_over(poll, found)
            elif not self._end_polls():
                await self._wait(again_s)
        if full:
            self._put_back()

    async def _look(self, poll: Poll) -> tuple[list[Message[Any]], float]:
        self.operations.worker = poll.client.worker
        return await self._store.perform(self.operations.look(poll.most, poll.duration_ms))

    def _hand_over(self, poll: Poll, found: list[Message[Any]]) -> None:
        if not poll.answer.done():
            poll.answer.set_result(found)
        elif found:  # the client has vanished while this was leased for it
            in_background(give_back(self._store, self.operations, found, poll.client.worker))

    def _fail(self, error: Exception) -> None:
        polls = [*self._polls]
        self._polls.clear()
        for poll in polls:
            if not poll.answer.done():
                poll.answer.set_exception(error)

    def _end_polls(self) -> bool:
        """Answer those whose time is over; whether there were any."""
        now, before = time.monotonic(), len(self._polls)
        while self._ends and (self._ends[0][0] <= now or self._ends[0][2] not in self._polls):
            *_, poll = heappop(self._ends)
            self._polls.pop(poll, None)
            if not poll.answer.done():
                poll.answer.set_result([])
        return len(self._polls) < before

    async def _wait(self, again_s: float) -> None:
        """Until a message comes, another poll does, or the time of one is over."""
        rest = self._ends[0][0] - time.monotonic()
        loop = asyncio.get_running_loop()
        if self._block is None or self._block.done():
            step = Block(self.operations.wake_keys, max(again_s, _SHORTEST_S))
            self._block = loop.create_task(self._store.block(step))
            self._block.add_done_callback(self._woken)
        asked = loop.create_task(self._asked.wait())
        await asyncio.wait(
            {self._block, asked},
            timeout=max(_SHORTEST_S, min(rest, again_s)),
            return_when=asyncio.FIRST_COMPLETED,
        )
        asked.cancel()

    def _woken(self, block: asyncio.Task[str | None]) -> None:
        """A wake-up came; if nobody waits here any more, it is for others."""
        if not block.cancelled() and block.exception() is None:
            self._wake_up = block.result()
            if not self._polls:
                self._put_back()

    def _put_back(self) -> None:
        """There may be more than those who waited here have taken."""
        key, self._wake_up = self._wake_up, None
        if key is not None:
            in_background(_quietly(self._store, key))


_SHORTEST_S = 0.005
_BACKGROUND: set[asyncio.Task[None]] = set()


def in_background(work: Coroutine[Any, Any, None]) -> None:
    """Do it beside everything else, though whoever wanted it is gone."""
    task = asyncio.get_running_loop().create_task(work)
    _BACKGROUND.add(task)
    task.add_done_callback(_BACKGROUND.discard)


async def _quietly(store: Store, key: str) -> None:
    with suppress(RqretryError):  # at worst a hint is lost
        await store.run(Command("zadd", (key,), (), int, arguments=("ZADD", key, 0, "1")))


class Groups:
    """The readers of one gateway process.

    Attributes:
        create: Whether unknown topics and groups are created.
    """

    def __init__(self, store: Store, catalog: Catalog, *, create: bool) -> None:
        self.store = store
        self._catalog = catalog
        self.create = create
        self._readers: dict[tuple[str, str], GroupReader] = {}
        self._records: dict[str, tuple[float, GroupRecord]] = {}

    @property
    def polls(self) -> int:
        """Long polls that are open."""
        return sum(map(len, self._readers.values()))

    @property
    def levels(self) -> LevelTable | None:
        """The level table of the namespace; None before it is known."""
        return self._catalog.store.levels

    async def partitions(self, topic: str) -> int:
        """How many a topic has. Raises TopicNotFound."""
        found = self._catalog.topics.get(topic, create=self.create)
        return (await self.store.perform(found)).partitions

    async def record(self, group: str) -> GroupRecord:
        """A group's settings, at most some seconds old. Raises GroupNotFound."""
        read_at, record = self._records.get(group, (0.0, None))
        if record is None or time.monotonic() >= read_at + _RECORD_S:
            record = await self.store.perform(self._catalog.groups.get(group))
            self._records[group] = (time.monotonic(), record)
        return record

    async def reader(
        self, client: ConnectedClient, group: str, topic: str, tags: str | None = None
    ) -> GroupReader:
        """The reader of a group in a topic, to which it is subscribed.

        Raises:
            GroupNotFound, TopicNotFound: It is not there, and is not created.
            ConfigError: The group is of another kind than the client.
        """
        reader = self._readers.get((group, topic))
        retagged = tags is not None and client.expressions.get((group, topic)) != tags
        if reader is None or retagged:
            reader = await self._join(client, group, topic, tags, reader)
        check_kind(client, reader.operations.kind, group)
        return reader

    def drop(self, reader: GroupReader) -> None:
        """Its group or topic is gone."""
        self._readers = {key: one for key, one in self._readers.items() if one is not reader}

    async def aclose(self) -> None:
        """End all polls."""
        await asyncio.gather(*(reader.aclose() for reader in self._readers.values()))

    async def _join(
        self,
        client: ConnectedClient,
        group: str,
        topic: str,
        tags: str | None,
        reader: GroupReader | None,
    ) -> GroupReader:
        kind = await self._kind(client, group)
        check_kind(client, kind, group)
        perform, catalog = self.store.perform, self._catalog
        if not topic.startswith(DLQ):
            await self.partitions(topic)
        wish: dict[str, Any] = {"create": self.create, **({} if tags is None else {"tags": tags})}
        made = PushOperations if kind == PUSH else SimpleOperations
        operations = made(catalog, group, [topic], client.worker, wish, MAX_POSTPONES)
        record = await perform(operations.join())
        self._records[group] = (time.monotonic(), record)
        if tags is not None:
            client.expressions[group, topic] = tags
        client.groups.add(group)
        client.topics.add(topic)
        if reader is None:
            reader = GroupReader(self.store, operations)
        return self._readers.setdefault((group, topic), reader)

    async def _kind(self, client: ConnectedClient, group: str) -> str:
        try:
            return (await self.record(group)).kind
        except GroupNotFound:
            if not self.create:
                raise
            return PUSH if client.kind == PUSH else SIMPLE


def check_kind(client: ConnectedClient, kind: str, group: str) -> None:
    """Whether a client can consume for a group of this kind. Raises ConfigError."""
    if kind == BROADCAST or (client.kind in (PUSH, SIMPLE) and client.kind != kind):
        what = client.kind or "simple"
        raise ConfigError(
            f"group {show(group)} is the group of a {kind} consumer and cannot also be {what};"
            " use another group name"
        )


def handle_of(text: str, group: str) -> ReceiptHandle:
    """A receipt handle of this group. Raises InvalidReceiptHandle, Refused."""
    handle = ReceiptHandle.parse(text)
    if handle.group != group:
        raise Refused(
            Code.INVALID_RECEIPT_HANDLE,
            f"receipt handle {show(text)} belongs to group {show(handle.group)}, not to"
            f" {show(group)}",
        )
    return handle
