"""Operations in turn: while the server executes the call of one, the next one is made and sent.

All on one connection, whose requests the server executes in their order. Two are under way at most.
An operation is brought to its end before the next one gets its answer, so that it may be repeated
first; whatever must not happen unless the one in front did has to say so in its call (publish.lua).
What fails takes the usual way: what was lost is repeated by itself, and until it has an
answer nothing new is sent ahead.
"""

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from rqretry.core.errors import RqretryError
from rqretry.protocol.command import Command, Operation, Step
from rqretry.transport.node import Acquire, Close, Procedure, Receive, Release, Send, key_of
from rqretry.transport.replies import TryAgain
from rqretry.transport.session import Session, spell

T = TypeVar("T")


def in_turn(
    session: Session, operations: Iterable[Operation[T]]
) -> Procedure[list[T | RqretryError]]:
    """Perform operations in their order, each sent before the one in front of it is answered.

    An operation whose first step is not a command, or wants a confirmation, is begun and
    performed when those in front of it have ended.

    Returns:
        What each answered, or its error.
    """
    pipeline: _Pipeline[T] = _Pipeline(session)
    try:
        for operation in operations:
            yield from pipeline.take(_Turn(operation))
        yield from pipeline.finish()
    finally:
        yield from pipeline.close()
    return pipeline.answers


class _Turn(Generic[T]):
    """An operation in its turn, behind one that has no answer yet.

    Attributes:
        operation: The operation.
        step: Its first step; None before it was begun, and where it has none.
        sent: Whether that is under way.
        answer: What it came to.
    """

    __slots__ = ("answer", "operation", "sent", "step")

    def __init__(self, operation: Operation[T]) -> None:
        self.operation = operation
        self.step: Step | None = None
        self.sent = False
        self.answer: T | RqretryError

    def begin(self) -> None:
        """Find its first step."""
        try:
            self.step = self.operation.send(None)
        except StopIteration as end:
            self.answer = end.value
        except RqretryError as error:
            self.answer = error

    @property
    def command(self) -> Command[Any] | None:
        """Its first step, where that can be sent ahead: a call that is one request."""
        step = self.step
        return step if isinstance(step, Command) and not (step.confirm or step.ahead) else None


class _Pipeline(Generic[T]):
    def __init__(self, session: Session) -> None:
        self.answers: list[T | RqretryError] = []
        self._session = session
        self._connection: Any = None
        self._lost: TryAgain | None = None
        self._clean = True
        self._open: list[_Turn[T]] = []
        self._under_way: _Turn[T] | None = None

    def take(self, turn: _Turn[T]) -> Procedure[None]:
        """Begin an operation, and send its call; then end the one in front of it."""
        self._open.append(turn)
        turn.begin()
        yield from self._send(turn)
        yield from self.finish()
        if turn.sent:
            self._under_way = turn
            return
        if not self._clean:  # nothing is under way on it any more
            yield from self._put_back()
        yield from self._end(turn)

    def finish(self) -> Procedure[None]:
        """End the operation that is under way."""
        turn, self._under_way = self._under_way, None
        if turn is not None:
            yield from self._end(turn)

    def close(self) -> Procedure[None]:
        """Give the connection back; what was cut off learns that it is."""
        for turn in self._open:
            self._clean = False
            turn.operation.close()
        yield from self._put_back()

    def _put_back(self) -> Procedure[None]:
        connection, self._connection = self._connection, None
        if connection is not None:
            yield Release(connection) if self._clean else Close(connection)
        self._lost, self._clean = None, True

    def _send(self, turn: _Turn[T]) -> Procedure[None]:
        command = turn.command
        if command is None or not self._clean or not self._session.ahead:
            return
        connection = yield from self._connection_for(command)
        if connection is None:
            return
        turn.sent = True
        try:
            yield Send(connection, [spell(connection.node, command)])
        except TryAgain as again:
            yield from self._lose(connection, again)

    def _connection_for(self, command: Command[Any]) -> Procedure[Any]:
        """The connection, where it leads to the server of this command; None if not."""
        session = self._session
        try:
            if self._connection is None:
                yield from session.locate()
            yield from session.eviction.admit()
            node = session.topology.node(key_of(command))
            if self._connection is None:
                self._connection = yield Acquire(node)
        except (TryAgain, RqretryError):
            return None  # the usual way finds out what is wrong
        return self._connection if self._connection.node is node else None

    def _end(self, turn: _Turn[T]) -> Procedure[None]:
        result, error = None, None
        if turn.step is not None:
            try:
                result = yield from self._result(turn)
            except Exception as caught:  # noqa: BLE001 - handed to the operation, which may handle it
                error = caught
            try:
                turn.answer = yield from self._session.perform(turn.operation, result, error)
            except RqretryError as raised:
                turn.answer = raised
        self._open.remove(turn)
        self.answers.append(turn.answer)

    def _result(self, turn: _Turn[T]) -> Procedure[Any]:
        connection, command = self._connection, turn.command
        if not turn.sent or command is None:
            return (yield from self._session.step(turn.step))
        if self._lost is None and connection is not None:
            try:
                (reply,) = yield Receive(connection, 1)
            except TryAgain as again:
                yield from self._lose(connection, again)
            else:
                self._clean = self._clean and not isinstance(reply, Exception)
                return (yield from self._session.answer(connection.node, command, reply))
        assert self._lost is not None, "a connection that is gone was lost"
        return (yield from self._session.repeat(command, self._lost))

    def _lose(self, connection: Any, again: TryAgain) -> Procedure[None]:
        yield Close(connection)
        yield from self._session.distrust(connection.node, again)
        self._connection, self._lost, self._clean = None, again, False
