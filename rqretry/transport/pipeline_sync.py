"""The same as turns.py for code without asyncio."""

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from redis.exceptions import AskError, NoScriptError

from rqretry.core.errors import RqretryError
from rqretry.protocol.command import Command, Operation
from rqretry.transport.batch import Turn
from rqretry.transport.pool_sync import SyncLine
from rqretry.transport.replies import TryAgain
from rqretry.transport.store_sync import SyncStore
from rqretry.transport.topology import key_of

T = TypeVar("T")


def perform_in_turn(store: SyncStore, operations: Iterable[Operation[T]]) -> list[T | RqretryError]:
    """Perform operations in their order, each sent before the one in front of it is answered.

    See `turns.perform_in_turn`.
    """
    turns: _Turns[T] = _Turns(store)
    try:
        for operation in operations:
            turns.take(Turn(operation))
        turns.finish()
    finally:
        turns.close()
    return turns.answers


class _Turns(Generic[T]):
    def __init__(self, store: SyncStore) -> None:
        self.answers: list[T | RqretryError] = []
        self._store = store
        self._pool = store.pool
        self._line: SyncLine | None = None
        self._lost: TryAgain | None = None
        self._clean = True
        self._open: list[Turn[T]] = []
        self._under_way: Turn[T] | None = None

    def take(self, turn: Turn[T]) -> None:
        """Begin an operation, and send its call; then end the one in front of it."""
        self._open.append(turn)
        turn.begin()
        self._send(turn)
        self.finish()
        if turn.sent:
            self._under_way = turn
            return
        if not self._clean:  # nothing is under way on it any more
            self._put_back()
        self._end(turn)

    def finish(self) -> None:
        """End the operation that is under way."""
        turn, self._under_way = self._under_way, None
        if turn is not None:
            self._end(turn)

    def close(self) -> None:
        """Give the connection back; what was cut off learns that it is."""
        for turn in self._open:
            self._clean = False
            turn.operation.close()
        self._put_back()

    def _put_back(self) -> None:
        line, self._line = self._line, None
        if line is not None and self._clean:
            self._pool.release(line)
        elif line is not None:
            line.close()
        self._lost, self._clean = None, True

    def _send(self, turn: Turn[T]) -> None:
        command = turn.command
        if command is None or not self._clean or not self._store.ahead:
            return
        line = self._line_to(command)
        if line is None:
            return
        turn.sent = True
        try:
            self._pool.send(line, [line.node.wire.words(command)])
        except TryAgain as again:
            self._lose(line, again)

    def _line_to(self, command: Command[Any]) -> SyncLine | None:
        """The connection, where it leads to the server of this command; None where not."""
        try:
            if self._line is None:
                self._pool.locate()
            node = self._store.topology.node(key_of(command))
            if self._line is None:
                self._line = self._pool.acquire(node, self._store.clock)
        except (TryAgain, RqretryError):
            return None  # the usual way finds out what is wrong
        return self._line if self._line.node is node else None

    def _end(self, turn: Turn[T]) -> None:
        result, error = None, None
        if turn.step is not None:
            try:
                result = self._result(turn)
            except Exception as caught:  # noqa: BLE001 - handed to the operation, which may handle it
                error = caught
            try:
                turn.answer = self._store.perform(turn.operation, result, error)
            except RqretryError as raised:
                turn.answer = raised
        self._open.remove(turn)
        self.answers.append(turn.answer)

    def _result(self, turn: Turn[T]) -> Any:
        line, command = self._line, turn.command
        if not turn.sent or command is None:
            return self._store.step(turn.step)
        if self._lost is None and line is not None:
            try:
                (reply,) = self._pool.receive(line, 1)
            except TryAgain as again:
                self._lose(line, again)
            else:
                self._clean = self._clean and not isinstance(reply, Exception)
                if isinstance(reply, NoScriptError | AskError):  # MOVED too: nothing was executed
                    return self._store.run(command)
                return self._store.answer(line.node, command, reply)
        assert self._lost is not None, "a connection that is gone was lost"
        return self._store.repeat(command, self._lost)

    def _lose(self, line: SyncLine, again: TryAgain) -> None:
        line.close()
        self._pool.distrust(line.node, again)
        self._line, self._lost, self._clean = None, again, False
