"""Operations in turn: while the server executes the call of one, the next one is made and sent.

All on one connection, whose requests the server executes in their order. Two are under way at most.
An operation is brought to its end before the next one gets its answer, so that it may be repeated
first; whatever must not happen unless the one in front did has to say so in its call (publish.lua).
What goes wrong goes the usual way: what was lost is repeated by itself, and until it has an
answer nothing new is sent ahead.
"""

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from redis.exceptions import AskError, NoScriptError

from rqretry.core.errors import RqretryError
from rqretry.protocol.command import Command, Operation
from rqretry.transport.batch import Turn
from rqretry.transport.pool import Line
from rqretry.transport.replies import TryAgain
from rqretry.transport.store import Store
from rqretry.transport.topology import key_of

T = TypeVar("T")


async def perform_in_turn(
    store: Store, operations: Iterable[Operation[T]]
) -> list[T | RqretryError]:
    """Perform operations in their order, each sent before the one in front of it is answered.

    An operation whose first step is not a command, or wants a confirmation, is begun and
    performed when those in front of it have ended.

    Returns:
        What each answered, or its error.
    """
    turns: _Turns[T] = _Turns(store)
    try:
        for operation in operations:
            await turns.take(Turn(operation))
        await turns.finish()
    finally:
        await turns.close()
    return turns.answers


class _Turns(Generic[T]):
    def __init__(self, store: Store) -> None:
        self.answers: list[T | RqretryError] = []
        self._store = store
        self._pool = store.pool
        self._line: Line | None = None
        self._lost: TryAgain | None = None
        self._clean = True
        self._open: list[Turn[T]] = []
        self._under_way: Turn[T] | None = None

    async def take(self, turn: Turn[T]) -> None:
        """Begin an operation, and send its call; then end the one in front of it."""
        self._open.append(turn)
        turn.begin()
        await self._send(turn)
        await self.finish()
        if turn.sent:
            self._under_way = turn
            return
        if not self._clean:  # nothing is under way on it any more
            await self._put_back()
        await self._end(turn)

    async def finish(self) -> None:
        """End the operation that is under way."""
        turn, self._under_way = self._under_way, None
        if turn is not None:
            await self._end(turn)

    async def close(self) -> None:
        """Give the connection back; what was cut off learns that it is."""
        for turn in self._open:
            self._clean = False
            turn.operation.close()
        await self._put_back()

    async def _put_back(self) -> None:
        line, self._line = self._line, None
        if line is not None and self._clean:
            await self._pool.release(line)
        elif line is not None:
            await line.close()
        self._lost, self._clean = None, True

    async def _send(self, turn: Turn[T]) -> None:
        command = turn.command
        if command is None or not self._clean or not self._store.ahead:
            return
        line = await self._line_to(command)
        if line is None:
            return
        turn.sent = True
        try:
            await self._pool.send(line, [line.node.wire.words(command)])
        except TryAgain as again:
            await self._lose(line, again)

    async def _line_to(self, command: Command[Any]) -> Line | None:
        """The connection, where it leads to the server of this command; None where not."""
        try:
            if self._line is None:
                await self._pool.locate()
            node = self._store.topology.node(key_of(command))
            if self._line is None:
                self._line = await self._pool.acquire(node, self._store.clock)
        except (TryAgain, RqretryError):
            return None  # the usual way finds out what is wrong
        return self._line if self._line.node is node else None

    async def _end(self, turn: Turn[T]) -> None:
        result, error = None, None
        if turn.step is not None:
            try:
                result = await self._result(turn)
            except Exception as caught:  # noqa: BLE001 - handed to the operation, which may handle it
                error = caught
            try:
                turn.answer = await self._store.perform(turn.operation, result, error)
            except RqretryError as raised:
                turn.answer = raised
        self._open.remove(turn)
        self.answers.append(turn.answer)

    async def _result(self, turn: Turn[T]) -> Any:
        line, command = self._line, turn.command
        if not turn.sent or command is None:
            return await self._store.step(turn.step)
        if self._lost is None and line is not None:
            try:
                (reply,) = await self._pool.receive(line, 1)
            except TryAgain as again:
                await self._lose(line, again)
            else:
                self._clean = self._clean and not isinstance(reply, Exception)
                if isinstance(reply, NoScriptError | AskError):  # MOVED too: nothing was executed
                    return await self._store.run(command)
                return await self._store.answer(line.node, command, reply)
        assert self._lost is not None, "a connection that is gone was lost"
        return await self._store.repeat(command, self._lost)

    async def _lose(self, line: Line, again: TryAgain) -> None:
        await line.close()
        await self._pool.distrust(line.node, again)
        self._line, self._lost, self._clean = None, again, False
