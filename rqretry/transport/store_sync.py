"""The same door as store.py for code without asyncio: sync handlers, Django, Flask, the CLI.

Thread-safe (each call has a connection of its own) and fork-safe (a child opens its own).
"""

import time
from collections.abc import Sequence
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
from rqretry.transport.pool_sync import SyncLine, SyncPool
from rqretry.transport.replies import (
    BLOCK_MARGIN_SECONDS,
    CONNECT_SECONDS,
    REPEAT_SECONDS,
    REPLY_SECONDS,
    ServerClock,
    TryAgain,
    Wire,
)
from rqretry.transport.topology import Node, Topology, topology_of
from rqretry.transport.wakeup_sync import wait_apart

T = TypeVar("T")


class SyncStore:
    """Connections to one server, to the primary that Sentinels name, or to a cluster; for threads.

    Attributes:
        clock: The server's time as this client estimates it; of a cluster, roughly.
        pool: The connections.
    """

    ahead = True
    """Whether a call may be sent before the one in front of it is answered (turns_sync.py)."""

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
        self.pool = SyncPool(
            topology_of(url, library or ScriptLibrary()),
            url.option("socket_connect_timeout", CONNECT_SECONDS),
            url.option("socket_timeout", reply_seconds),
        )
        self.repeat_seconds = repeat_seconds

    @property
    def topology(self) -> Topology[SyncLine]:
        """Which server holds what."""
        return self.pool.topology

    @property
    def wire(self) -> Wire:
        """Spells commands; of a cluster, for the node that was found first."""
        node = next(iter(self.topology.nodes.values()), None)
        return node.wire if node else Wire(self.topology.scripts, self.url.place)

    @property
    def spread(self) -> bool:
        """Whether two partitions may be on two servers."""
        return self.topology.spread

    def servers(self) -> list[RedisUrl]:
        """The servers in use, each as a URL of its own: the primaries of a cluster.

        Raises:
            StoreUnavailable: They cannot be asked.
        """
        self.connect()
        return [node.url for node in self.topology.nodes.values()]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def run(self, command: Command[T]) -> T:
        """Run one command. Raises StoreUnavailable, AmbiguousResult, ConfigError, ScriptError."""
        result: T = self.run_all((command,))[0]
        return result

    def run_all(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Run commands, one round trip to each server that has some of them, all at once.

        Those of one partition run in their order. An error of one is raised after all have run.
        """
        if len(commands) == 1 and not commands[0].confirm:
            line = self.pool.open_line()
            if line is not None:
                return [self._run_at_once(commands[0], line)]
        batch = Batch(commands)
        try:
            self._attempt(batch)
        except TryAgain:
            self._repeat(batch, self.repeat_seconds)
        return batch.results

    def run_each(self, commands: Sequence[Command[Any]], seconds: float) -> list[Any]:
        """The same, but what fails is a value in its place: its RqretryError.

        Args:
            commands: The commands.
            seconds: How long to repeat what may succeed later.
        """
        batch = Batch(commands)
        try:
            self._attempt(batch)
        except TryAgain:
            with suppress(RqretryError):
                self._repeat(batch, seconds)
        except RqretryError:
            pass
        return batch.outcomes()

    def perform(
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
                step = self.step(step)
            except Exception as caught:  # noqa: BLE001 - handed to the operation, which may handle it
                error = caught
            except BaseException:  # interrupted: the operation learns that now
                operation.close()
                raise

    def connect(self) -> None:
        """Make sure that the server can be reached, is new enough, and told its time."""
        if not self.clock.known or self.topology.stale:
            self.run(Command("ping", (), (), bytes, arguments=("PING",)))

    def close(self) -> None:
        """Close all connections that are not in use."""
        self.pool.close()

    def block(self, step: Block) -> str | None:
        """Wait for a wake key; a connection that breaks while waiting counts as a wake-up."""
        try:
            self.pool.locate()
            if self.spread and len(step.keys) > 1:
                return wait_apart(self.pool, self.clock, step.keys, step.seconds)
            node = self.topology.node(step.keys[0])
            line = self.pool.acquire(node, self.clock)
            words: tuple[Argument, ...] = (
                "BZPOPMIN",
                *step.keys,
                max(0.001, round(step.seconds, 3)),
            )
            try:
                patience = step.seconds + BLOCK_MARGIN_SECONDS
                (reply,) = self.pool.exchange(line, [words], patience)
            except BaseException:
                line.close()
                raise
        except TryAgain:
            time.sleep(0.05)
            return None
        self.pool.release(line)
        return reply[0].decode() if isinstance(reply, list) else None

    def step(self, step: Any) -> Any:
        """Do one step of an operation."""
        if isinstance(step, Command):
            return self.run(step)
        if isinstance(step, Block):
            return self.block(step)
        if isinstance(step, Pause):
            return time.sleep(step.seconds)
        return self.run_all(step)

    def _run_at_once(self, command: Command[T], line: SyncLine) -> T:
        """A batch of one command for the one server, with fewer steps; most calls are that."""
        node = line.node
        try:
            reply = self._reply(command, line)
        except TryAgain as again:
            self.pool.distrust(node, again)
            return self.repeat(command, again)
        return self.answer(node, command, reply)

    def answer(self, node: Node[SyncLine], command: Command[T], reply: Any) -> T:
        """What a server's reply to a command means; what is worth repeating is repeated."""
        node.trouble = None
        try:
            return node.wire.result(command, reply)
        except TryAgain as again:
            if again.elsewhere:
                self.pool.distrust(node, again)
            return self.repeat(command, again)

    def repeat(self, command: Command[T], again: TryAgain) -> T:
        """Run a command whose first attempt has failed; raises what `run` raises."""
        batch = Batch((command,))
        batch.put_off(0, again)
        self._repeat(batch, self.repeat_seconds)
        result: T = batch.results[0]
        return result

    def _reply(self, command: Command[Any], line: SyncLine) -> Any:
        wire = line.node.wire
        try:
            (reply,) = self.pool.exchange(line, [wire.words(command)])
            if isinstance(reply, NoScriptError):
                words = [wire.load(command), wire.words(command)]
                reply = self.pool.exchange(line, words)[1]
        except BaseException:
            line.close()
            raise
        self.pool.release(line)
        return reply

    def _repeat(self, batch: Batch, seconds: float) -> None:
        try:
            for attempt in tenacity.Retrying(
                retry=tenacity.retry_if_exception_type(TryAgain),
                wait=tenacity.wait_random_exponential(multiplier=0.02, max=1.0),
                stop=tenacity.stop_after_delay(seconds),
                reraise=True,
            ):
                with attempt:
                    self._attempt(batch)
        except TryAgain as last:
            raise batch.give_up(last) from last

    def _attempt(self, batch: Batch) -> None:
        self.pool.locate()
        # All requests are sent before the first reply is read: the servers work at once.
        flights = [(share, self._send(batch, share)) for share in batch.shares(self.topology)]
        for share, line in flights:
            if line is not None:
                self._receive(batch, share, line)
        batch.check()

    def _send(self, batch: Batch, share: Share) -> SyncLine | None:
        try:
            line = self.pool.acquire(share.node, self.clock)
            try:
                self.pool.send(line, share.requests())
            except BaseException:
                line.close()
                raise
        except TryAgain as again:
            self.pool.distrust(share.node, again)
            batch.failed(share, again)
        except RqretryError as error:
            batch.refused(share, error)
        else:
            return line
        return None

    def _receive(self, batch: Batch, share: Share, line: SyncLine) -> None:
        try:
            answers = self._answers(share, line)
        except TryAgain as again:
            self.pool.distrust(share.node, again)
            batch.failed(share, again)
            return
        share.node.trouble = None
        wrong = batch.settle(self.topology, share, answers)
        if wrong and wrong.elsewhere:
            self.pool.distrust(share.node, wrong)

    def _answers(self, share: Share, line: SyncLine) -> list[list[Any]]:
        try:
            replies = self.pool.receive(line, share.count)
            again = share.unknown(replies)
            answers = share.merge(replies, self.pool.exchange(line, again) if again else [])
        except BaseException:
            line.close()
            raise
        self.pool.release(line)
        return answers
