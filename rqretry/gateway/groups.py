"""One group in one topic: its long polls, all served by one reader.

However many clients wait, one call at a time leases, and one connection waits for a wake-up. What
bounds a process: docs/decisions/0131.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, TypeVar

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
from rqretry.gateway.slots import Slots, in_background
from rqretry.protocol.command import Block, Command
from rqretry.transport.store import Store

log = logging.getLogger("rqretry")

T = TypeVar("T")

MOST_POLLS = 10_000
"""Long polls that one process holds open; further ones are refused."""
MOST_READERS = 1_000
"""Groups and topics that they may be for; each has a connection that waits."""
MOST_LOOKUPS = 64
"""Subscriptions that are made and settings that are read at the same time."""
_MOST_ENDED = 4
"""So many ends of polls are kept for each that waits, before the others are dropped."""
_SHORTEST_S = 0.005
_TOGETHER_S = 0.02
"""Polls that end so close to each other are answered at once."""
_LATE_S = 0.2
"""So much later than it should a poll ends while messages come for others."""
_RECORD_S = 5.0
"""For how long a group's settings are remembered, and that it is subscribed."""


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
    """Leases for all clients that wait for one group in one topic.

    Args:
        store: Of the namespace.
        operations: Of the group.
        slots: Where messages are given back that nobody wants any more.
        serving: The readers that poll or wait, among which this one is to be while it does.
    """

    def __init__(
        self,
        store: Store,
        operations: SimpleOperations,
        slots: Slots,
        serving: set["GroupReader"],
    ) -> None:
        self.operations = operations
        self._store = store
        self._slots = slots
        self._serving = serving
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
        """What there is for it, at once or before it ends; possibly nothing. Raises Refused."""
        if len(self._serving) >= MOST_READERS and self not in self._serving:
            raise Refused(
                Code.TOO_MANY_REQUESTS,
                f"receives for {MOST_READERS} groups and topics are waiting: try again later",
            )
        self._serving.add(self)
        self._polls[poll] = None
        poll.answer.add_done_callback(lambda _: self._polls.pop(poll, None))
        if len(self._ends) > _MOST_ENDED * (len(self._polls) + 1):
            self._ends = [end for end in self._ends if end[2] in self._polls]
            heapify(self._ends)
        if not self._ends or poll.until < self._ends[0][0]:  # others have looked, and wait
            self._asked.set()
        heappush(self._ends, (poll.until, next(self._number), poll))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._serve())
            self._task.add_done_callback(lambda _: self._rest())
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
                self._end_polls(time.monotonic() - _LATE_S)
            else:
                self._end_polls(time.monotonic())
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
            self._slots.later(give_back(self._store, self.operations, found, poll.client.worker))

    def _fail(self, error: Exception) -> None:
        polls = [*self._polls]
        self._polls.clear()
        for poll in polls:
            if not poll.answer.done():
                poll.answer.set_exception(error)

    def _end_polls(self, until: float) -> None:
        """Answer those whose time was over then."""
        while self._ends and (self._ends[0][0] <= until or self._ends[0][2] not in self._polls):
            *_, poll = heappop(self._ends)
            self._polls.pop(poll, None)
            if not poll.answer.done():
                poll.answer.set_result([])

    async def _wait(self, again_s: float) -> None:
        """Until there may be a message; polls whose time is over meanwhile are answered."""
        if not self._polls:
            return
        loop, again_s = asyncio.get_running_loop(), max(again_s, _SHORTEST_S)
        look_at = time.monotonic() + again_s
        if self._block is None or self._block.done():
            step = Block(self.operations.wake_keys, again_s)
            self._block = loop.create_task(self._store.block(step))
            self._block.add_done_callback(self._woken)
        asked = loop.create_task(self._asked.wait())
        while self._polls and (rest := look_at - time.monotonic()) > 0:
            ends_in = max(_TOGETHER_S, self._ends[0][0] - time.monotonic())
            done, _ = await asyncio.wait(
                {self._block, asked},
                timeout=min(ends_in, rest),
                return_when=asyncio.FIRST_COMPLETED,
            )
            if done:
                break
            self._end_polls(time.monotonic())
        asked.cancel()

    def _woken(self, block: asyncio.Task[str | None]) -> None:
        """A wake-up came; if nobody waits here any more, it is for others."""
        if not block.cancelled() and block.exception() is None:
            self._wake_up = block.result()
            if not self._polls:
                self._put_back()
        self._rest()

    def _rest(self) -> None:
        """Nobody waits here any more, and no connection does."""
        if not self._polls and (self._block is None or self._block.done()):
            self._serving.discard(self)

    def _put_back(self) -> None:
        """There may be more than those who waited here have taken."""
        key, self._wake_up = self._wake_up, None
        if key is not None:
            in_background(_quietly(self._store, key))


async def _quietly(store: Store, key: str) -> None:
    with suppress(RqretryError):  # at worst a hint is lost
        await store.run(Command("zadd", (key,), (), int, arguments=("ZADD", key, 0, "1")))


class Groups:
    """The readers of one gateway process.

    Attributes:
        create: Whether unknown topics and groups are created.
        slots: Of the calls that need Redis.
        lookups: Of what is subscribed or read for all who want it at that time. Who waits for it
            needs no slot: however many clients come at once, they want the same few.
    """

    def __init__(self, store: Store, catalog: Catalog, *, create: bool) -> None:
        self.store = store
        self._catalog = catalog
        self.create = create
        self.slots = Slots()
        self.lookups = Slots(MOST_LOOKUPS)
        self._serving: set[GroupReader] = set()
        self._under_way: dict[tuple[str | None, ...], asyncio.Task[Any]] = {}
        self._readers: dict[tuple[str, str], GroupReader] = {}
        self._records: dict[str, tuple[float, GroupRecord]] = {}
        self._subscribed: dict[tuple[str, str], tuple[str | None, float]] = {}
        """With which tags, and when, by group and topic."""

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
            record = await self._once((group,), lambda: self._read(group))
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
            reader = await self._join(client, group, topic, tags)
        check_kind(client, reader.operations.kind, group)
        return reader

    def drop(self, reader: GroupReader) -> None:
        """Its group or topic is gone."""
        self._readers = {key: one for key, one in self._readers.items() if one is not reader}

    async def aclose(self) -> None:
        """End all polls."""
        await asyncio.gather(*(reader.aclose() for reader in self._readers.values()))

    async def _join(
        self, client: ConnectedClient, group: str, topic: str, tags: str | None
    ) -> GroupReader:
        kind = await self._kind(client, group)
        check_kind(client, kind, group)
        reader = self._readers.get((group, topic))
        last, at = self._subscribed.get((group, topic), (None, 0.0))
        if reader is None or last != tags or time.monotonic() >= at + _RECORD_S:
            wanted = (group, topic, tags, kind)
            reader = await self._once(wanted, lambda: self._subscribe(client.worker, *wanted))
        if tags is not None:
            client.expressions[group, topic] = tags
        client.groups.add(group)
        client.topics.add(topic)
        return reader

    async def _subscribe(
        self, worker: str, group: str, topic: str, tags: str | None, kind: str
    ) -> GroupReader:
        if not topic.startswith(DLQ):
            await self.partitions(topic)
        wish: dict[str, Any] = {"create": self.create, **({} if tags is None else {"tags": tags})}
        made = PushOperations if kind == PUSH else SimpleOperations
        operations = made(self._catalog, group, [topic], worker, wish, MAX_POSTPONES)
        record = await self.store.perform(operations.join())
        self._records[group] = (time.monotonic(), record)
        self._subscribed[group, topic] = (tags, time.monotonic())
        reader = GroupReader(self.store, operations, self.slots, self._serving)
        return self._readers.setdefault((group, topic), reader)

    async def _read(self, group: str) -> GroupRecord:
        record = await self.store.perform(self._catalog.groups.get(group))
        self._records[group] = (time.monotonic(), record)
        return record

    async def _once(
        self, wanted: tuple[str | None, ...], make: Callable[[], Coroutine[Any, Any, T]]
    ) -> T:
        """What several callers want at the same time is done once for all of them."""
        task: asyncio.Task[T] | None = self._under_way.get(wanted)
        if task is None:
            once = self._looked_up(make)
            task = self._under_way[wanted] = asyncio.get_running_loop().create_task(once)
            task.add_done_callback(lambda done: self._done(wanted, done))
        return await asyncio.shield(task)

    async def _looked_up(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        async with self.lookups:
            return await make()

    def _done(self, wanted: tuple[str | None, ...], task: asyncio.Task[Any]) -> None:
        del self._under_way[wanted]
        if not task.cancelled():
            task.exception()  # those who wanted it may be gone

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


def handle_of(text: str, group: str, topic: str) -> ReceiptHandle:
    """A receipt handle of this group in this topic. Raises InvalidReceiptHandle, Refused."""
    handle = ReceiptHandle.parse(text)
    if handle.group != group:
        raise Refused(
            Code.INVALID_RECEIPT_HANDLE,
            f"receipt handle {show(text)} belongs to group {show(handle.group)}, not to"
            f" {show(group)}",
        )
    if handle.topic != topic:
        raise Refused(
            Code.INVALID_RECEIPT_HANDLE,
            f"receipt handle {show(text)} is not of topic {show(topic)}",
        )
    return handle
