"""What the demo's handlers write: the book of arrivals, and the ledger of effects.

Both are ordinary data of an application, in Redis keys outside rqretry's own. The ledger gets one
item each time a handler took effect, so that the end report can compare what really happened with
what the queue reports.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rqretry.core.message import Message
from rqretry.protocol.command import Command, Operation, text
from rqretry.protocol.inspect import delete
from rqretry.transport.store import Store

A = TypeVar("A")
R = TypeVar("R")

_PAGE = 10_000

# Look an arrival up and take effect in one atomic step: one round trip for many claims.
_SETTLE = """
local ids, claimed, effects, known = {}, {}, {}, {}
for i = 1, #ARGV, 2 do
  ids[#ids + 1], claimed[#claimed + 1] = ARGV[i], ARGV[i + 1]
end
for i, arrival in ipairs(redis.call('HMGET', KEYS[1], unpack(ids))) do
  known[i] = arrival and 1 or 0
  if arrival then
    effects[#effects + 1] = claimed[i]
  end
end
if #effects > 0 then
  redis.call('RPUSH', KEYS[2], unpack(effects))
end
return known
"""


class BookKeys:
    """The demo's own keys for one namespace; one hash tag, so that a cluster keeps them together.

    `book` is a hash from flight id to arrival; `booked` and `settled` are ledgers: lists of
    effects written by the handlers of group arrival-book and of group claims.
    """

    def __init__(self, namespace: str) -> None:
        prefix = f"demo:{{{namespace}}}:"
        self.book = f"{prefix}book"
        self.booked = f"{prefix}booked"
        self.settled = f"{prefix}settled"


@dataclass(frozen=True, slots=True)
class Effect:
    """One item of a ledger: a handler took effect.

    Attributes:
        flight_id: The flight.
        attempt: Which delivery took effect.
        lease: The fencing token of that delivery: two effects with one lease are one delivery
            that took effect twice.
    """

    flight_id: str
    attempt: int
    lease: int

    def __str__(self) -> str:
        return f"{self.flight_id} {self.attempt} {self.lease}"

    @staticmethod
    def parse(item: str) -> "Effect":
        """Read what `str` wrote."""
        flight_id, attempt, lease = item.split(" ")
        return Effect(flight_id, int(attempt), int(lease))


class Coalescer(Generic[A, R]):
    """Makes one call of those that come while another is under way, or in one tick of the loop.

    Args:
        send: Takes the arguments of all callers, answers a result for each.
    """

    def __init__(self, send: Callable[[list[A]], Awaitable[list[R]]]) -> None:
        self._send = send
        self._waiting: list[tuple[A, asyncio.Future[R]]] = []
        self._sender: asyncio.Task[None] | None = None

    async def __call__(self, item: A) -> R:
        """The result for `item`; raises what the whole call raised."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._waiting.append((item, future))
        if self._sender is None:
            self._sender = loop.create_task(self._run())
        return await future

    async def _run(self) -> None:
        while self._waiting:
            calls, self._waiting = self._waiting, []
            try:
                results = await self._send([item for item, _ in calls])
            except Exception as error:  # noqa: BLE001 - it belongs to the callers
                for _, future in calls:
                    if not future.done():
                        future.set_exception(error)
            else:
                for (_, future), result in zip(calls, results, strict=True):
                    if not future.done():  # its handler was cancelled meanwhile
                        future.set_result(result)
        self._sender = None


class Book:
    """The book and the ledgers, for the handlers of one worker process.

    Attributes:
        record: Writes the arrival of a message into the book.
        settle: Settles the claim of a message if its arrival is in the book; whether it was.
    """

    def __init__(self, store: Store, namespace: str) -> None:
        self._store = store
        self._keys = BookKeys(namespace)
        self.record = Coalescer(self._record_all)
        self.settle = Coalescer(self._settle_all)

    async def _record_all(self, messages: list[Message[Any]]) -> list[None]:
        arrivals: list[str] = []
        for message in messages:
            arrivals += (message.body["flight_id"], json.dumps(message.body))
        new = [str(_effect(m, m.body["flight_id"])) for m in messages]
        writes = (("HSET", self._keys.book, *arrivals), ("RPUSH", self._keys.booked, *new))
        await self._store.run_all(
            [Command("record arrivals", (), (), int, arguments=write) for write in writes]
        )
        return [None] * len(messages)

    async def _settle_all(self, messages: list[Message[Any]]) -> list[bool]:
        arguments: list[str | int] = ["EVAL", _SETTLE, 2, self._keys.book, self._keys.settled]
        for message in messages:
            arguments += (message.id, str(_effect(message, message.id)))
        found: list[int] = await self._store.run(
            Command("settle claims", (), (), list, arguments=tuple(arguments))
        )
        return [bool(known) for known in found]


def _effect(message: Message[Any], flight_id: str) -> Effect:
    return Effect(flight_id, message.attempt, message.fencing_token)


def read_ledger(key: str) -> Operation[list[Effect]]:
    """All effects of a ledger, in the order they were written."""
    effects: list[Effect] = []
    start = 0
    while True:
        arguments = ("LRANGE", key, start, start + _PAGE - 1)
        items: list[bytes] = yield Command("read ledger", (), (), list, arguments=arguments)
        effects += (Effect.parse(text(item)) for item in items)
        if len(items) < _PAGE:
            return effects
        start += _PAGE


def delete_namespace(namespace: str) -> Operation[int]:
    """Delete all keys of a demo's namespace, rqretry's and its own; answers how many."""
    deleted = 0
    for pattern in (f"rqretry:{namespace}:*", f"demo:{{{namespace}}}:*"):
        cursor: int | None = None
        while cursor != 0:
            arguments = ("SCAN", cursor or 0, "MATCH", pattern, "COUNT", 1000)
            reply: list[Any] = yield Command("scan", (), (), list, arguments=arguments)
            cursor, keys = int(reply[0]), reply[1]
            if keys:
                # One each: a cluster has them apart.
                deleted += sum((yield [delete(text(key)) for key in keys]))
    return deleted
