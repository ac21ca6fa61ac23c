"""The asyncio door to Redis: runs commands and performs operations.

redis-py's own retries are off. A request is sent once per attempt; what failed in a way that is
worth repeating is repeated with back-off by tenacity until the deadline, on a fresh connection,
at the server that has the keys by then. All verbs are safe to repeat, by fencing and lanes; what
was answered is not repeated because of what was not. What may have happened and was not confirmed
in the end is AmbiguousResult, what certainly did not happen is StoreUnavailable.
"""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

import tenacity
from redis.exceptions import NoScriptError

from rqretry.core.errors import RqretryError
from rqretry.core.redis_url import RedisUrl
from rqretry.protocol.command import Argument, Block, Command, Operation, Pause
from rqretry.protocol.scripts import ScriptLibrary
from rqretry.transport.batch import Batch, Share
from rqretry.transport.pool import Line, Pool
from rqretry.transport.replies import (
    BLOCK_MARGIN_SECONDS,
    CONNECT_SECONDS,
    REPEAT_SECONDS,
    REPLY_SECONDS,
    Requests,
    ServerClock,
    TryAgain,
    Wire,
)
from rqretry.transport.topology import Node, Topology, key_of, topology_of
from rqretry.transport.wakeup import Watch

T = TypeVar("T")

_PATIENCE_S = 0.2
"""On a cluster: what one server has not answered by then is put off, and the others go on."""


class Store:
    """Connections to one server, to the primary that Sentinels name, or to a cluster.

    Attributes:
        clock: The server's time as this client estimates it; of a cluster, roughly.
        pool: The connections.
        proved_at: Monotonic time of the last call that the server answered as it should.
    """

    ahead = True
    """Whether a call may be sent before the one in front of it is answered (turns.py)."""

    def __init__(
        self,
        url: RedisUrl,
        library: ScriptLibrary | None = None,
        *,
        repeat_seconds: float = REPEAT_SECONDS,
        reply_seconds: float = REPLY_SECONDS,
    ) -> None:
        self.url = url
        self.clock = ServerClock()
        self.pool = Pool(
            topology_of(url, library or ScriptLibrary()),
            url.option("socket_connect_timeout", CONNECT_SECONDS),
            url.option("socket_timeout", reply_seconds),
        )
        self.repeat_seconds = repeat_seconds
        self.proved_at = 0.0
        self._watch = Watch(self.pool, self.clock)

    @property
    def topology(self) -> Topology[Line]:
        """Which server holds what."""
        return self.pool.topology

    @property
    def wire(self) -> Wire:
        """Spells commands; of a cluster, for the node that was found first."""
        nodes = iter(self.topology.nodes.values())
        node = next(nodes, None)
        return node.wire if node else Wire(self.topology.scripts, self.url.place)

    @property
    def trouble(self) -> str | None:
        """Why calls fail at the moment; None while they succeed."""
        return self.pool.trouble

    @property
    def on_change(self) -> Callable[[], None]:
        """Called when trouble begins or ends."""
        return self.pool.on_change

    @on_change.setter
    def on_change(self, called: Callable[[], None]) -> None:
        self.pool.on_change = called

    @property
    def spread(self) -> bool:
        """Whether two partitions may be on two servers."""
        return self.topology.spread

    @property
    def patience(self) -> float:
        """Seconds for which a call is repeated that calls to other servers wait for."""
        return _PATIENCE_S if self.spread else self.repeat_seconds

    def words(self, command: Command[Any]) -> tuple[Argument, ...]:
        """A command as a request for the server that it goes to."""
        try:
            return self.topology.node(key_of(command)).wire.words(command)
        except TryAgain:
            return self.wire.words(command)

    def clock_of(self, key: str) -> ServerClock:
        """The time of the server that has a key."""
        try:
            return self.topology.node(key).clock if self.spread else self.clock
        except TryAgain:
            return self.clock

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def run(self, command: Command[T]) -> T:
        """Run one command. Raises StoreUnavailable, AmbiguousResult, ConfigError, ScriptError."""
        result: T = (await self.run_all((command,)))[0]
        return result

    async def run_all(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Run commands, one round trip to each server that has some of them, all at once.

        Those of one partition run in their order. An error of one is raised after all have run.
        """
        if len(commands) == 1 and not commands[0].confirm:
            line = self.pool.open_line()
            if line is not None:
                return [await self._run_at_once(commands[0], line)]
        batch = Batch(commands)
        try:
            await self._attempt(batch)
        except TryAgain:
            await self._repeat(batch, self.repeat_seconds)
        return batch.results

    async def run_each(self, commands: Sequence[Command[Any]], seconds: float) -> list[Any]:
        """The same, but what fails is a value in its place: its RqretryError.

        Args:
            commands: The commands.
            seconds: How long to repeat what may succeed later.
        """
        batch = Batch(commands)
        try:
            await self._attempt(batch)
        except TryAgain:
            with suppress(RqretryError):
                await self._repeat(batch, seconds)
        except RqretryError:
            pass
        return batch.outcomes()

    async def prove(self, command: Command[Any], seconds: float) -> None:
        """Run a command that writes, at once or not at all: can this process work now?

        The answer is in `trouble`. Nothing is repeated but what an old connection broke.
        """
        try:
            async with asyncio.timeout(seconds):
                batch = Batch((command,))
                try:
                    await self._attempt(batch)
                except TryAgain:
                    await self._attempt(batch)
        except TryAgain as again:
            self.pool.lose(str(again.error))
        except TimeoutError as error:
            self.pool.lose(str(self.wire.broken(error, sent=True).error))
            await self.aclose()
        except RqretryError as error:
            self.pool.lose(str(error))

    async def perform(
        self, operation: Operation[T], step: Any = None, error: BaseException | None = None
    ) -> T:
        """Perform an operation to its end; its errors are raised inside it, then here.

        One that was begun goes on with what came of its last step: a result, or an error.
        """
        while True:
            try:
                step = operation.throw(error) if error else operation.send(step)
            except StopIteration as end:
                result: T = end.value
                return result
            error = None
            try:
                step = await self.step(step)
            except Exception as caught:  # noqa: BLE001 - handed to the operation, which may handle it
                error = caught
            except BaseException:  # cancelled: the operation learns that now, not when collected
                operation.close()
                raise

    async def connect(self) -> None:
        """Make sure that the server can be reached, is new enough, and told its time."""
        if not self.clock.known or self.topology.stale:
            await self.run(Command("ping", (), (), bytes, arguments=("PING",)))

    async def aclose(self) -> None:
        """Close all connections that are not in use."""
        await self._watch.aclose()
        await self.pool.aclose()

    async def step(self, step: Any) -> Any:
        """Do one step of an operation."""
        if isinstance(step, Command):
            return await self.run(step)
        if isinstance(step, Block):
            return await self.block(step)
        if isinstance(step, Pause):
            return await asyncio.sleep(step.seconds)
        return await self.run_all(step)

    async def block(self, step: Block) -> str | None:
        """Wait for a wake key; a connection that breaks while waiting counts as a wake-up."""
        if self.spread and len(step.keys) > 1:
            return next(iter(await self.watch(step.keys, step.seconds)), None)
        words: tuple[Argument, ...] = ("BZPOPMIN", *step.keys, max(0.001, round(step.seconds, 3)))
        try:
            line = await self.acquire(step.keys[0])
            try:
                (reply,) = await self.exchange(line, [words], step.seconds + BLOCK_MARGIN_SECONDS)
            except BaseException:
                await line.close()
                raise
        except TryAgain:
            await asyncio.sleep(0.05)
            return None
        await self.pool.release(line)
        return reply[0].decode() if isinstance(reply, list) else None

    async def watch(self, keys: Sequence[str], seconds: float) -> set[str]:
        """Wait for wake keys, each with a connection of its own (decisions 14).

        Returns:
            Those that are set, and those whose servers could not be asked.
        """
        await self._locate()
        return await self._watch.wait(keys, seconds)

    async def acquire(self, key: str) -> Line:
        """A connection to the server that has a key, to be released or closed.

        Raises:
            TryAgain: It cannot be reached now.
            ConfigError, UnsafeServer: It cannot be used.
        """
        await self._locate()
        return await self.pool.acquire(self.topology.node(key), self.clock)

    async def exchange(
        self, line: Line, requests: Requests, seconds: float | None = None
    ) -> list[Any]:
        """Send requests and read as many replies; errors of the server are values. TryAgain."""
        return await self.pool.exchange(line, requests, seconds)

    async def _run_at_once(self, command: Command[T], line: Line) -> T:
        """A batch of one command for the one server, with fewer steps; most calls are that."""
        node = line.node
        try:
            reply = await self._reply(command, line)
        except TryAgain as again:
            await self.pool.distrust(node, again)
            return await self.repeat(command, again)
        return await self.answer(node, command, reply)

    async def answer(self, node: Node[Line], command: Command[T], reply: Any) -> T:
        """What a server's reply to a command means; what is worth repeating is repeated."""
        try:
            result = node.wire.result(command, reply)
        except TryAgain as again:
            self.pool.note(node, str(again.error))
            if again.elsewhere:
                await self.pool.distrust(node, again)
            return await self.repeat(command, again)
        except RqretryError:
            self.pool.note(node, None)  # it answers
            raise
        self.pool.note(node, None)
        self.proved_at = time.monotonic()
        self.pool.lose(None)
        return result

    async def repeat(self, command: Command[T], again: TryAgain) -> T:
        """Run a command whose first attempt has failed; raises what `run` raises."""
        batch = Batch((command,))
        batch.put_off(0, again)
        await self._repeat(batch, self.repeat_seconds)
        result: T = batch.results[0]
        return result

    async def _reply(self, command: Command[Any], line: Line) -> Any:
        wire = line.node.wire
        try:
            (reply,) = await self.pool.exchange(line, [wire.words(command)])
            if isinstance(reply, NoScriptError):
                words = [wire.load(command), wire.words(command)]
                reply = (await self.pool.exchange(line, words))[1]
        except BaseException:
            await line.close()
            raise
        await self.pool.release(line)
        return reply

    async def _repeat(self, batch: Batch, seconds: float) -> None:
        try:
            async for attempt in tenacity.AsyncRetrying(
                retry=tenacity.retry_if_exception_type(TryAgain),
                wait=tenacity.wait_random_exponential(multiplier=0.02, max=1.0),
                stop=tenacity.stop_after_delay(seconds),
                reraise=True,
            ):
                with attempt:
                    await self._attempt(batch)
        except TryAgain as last:
            raise batch.give_up(last) from last

    async def _attempt(self, batch: Batch) -> None:
        await self._locate()
        shares = batch.shares(self.topology)
        if len(shares) == 1:
            await self._carry(batch, shares[0])
        elif shares:
            await asyncio.gather(*(self._carry(batch, share) for share in shares))
        batch.check()
        self.proved_at = time.monotonic()
        self.pool.lose(None)

    async def _carry(self, batch: Batch, share: Share) -> None:
        """One share, to its server and back; what goes wrong with it is the batch's to know."""
        try:
            answers = await self._round_trip(share)
        except TryAgain as again:
            await self.pool.distrust(share.node, again)
            batch.failed(share, again)
        except RqretryError as error:
            batch.refused(share, error)
        else:
            wrong = batch.settle(self.topology, share, answers)
            self.pool.note(share.node, str(wrong.error) if wrong else None)
            if wrong and wrong.elsewhere:
                await self.pool.distrust(share.node, wrong)

    async def _round_trip(self, share: Share) -> list[list[Any]]:
        line = await self.pool.acquire(share.node, self.clock)
        try:
            replies = await self.pool.exchange(line, share.requests())
            again = share.unknown(replies)
            answers = share.merge(replies, await self.pool.exchange(line, again) if again else [])
        except BaseException:
            await line.close()
            raise
        await self.pool.release(line)
        return answers

    async def _locate(self) -> None:
        try:
            await self.pool.locate()
        except TryAgain as again:
            self.pool.lose(str(again.error))
            raise


def jitter(seconds: float, source: random.Random) -> float:
    """Up to a tenth less, so that many waiting clients do not look at once."""
    return seconds * (1 - 0.1 * source.random())
