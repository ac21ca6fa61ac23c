"""Commands on their way: which went where, which are answered, and which to send again. No I/O.

A command that was answered is never sent again because of another one: a lease that is repeated
would leave its first messages to their deadline. What is still open after an attempt is, each by
itself, either certainly not done or possibly done (reliability.md R19, G9).
"""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from redis.exceptions import AskError, NoScriptError

from rqretry.core.durability import check_server
from rqretry.core.errors import AmbiguousResult, RqretryError
from rqretry.protocol.command import Command, Operation, Step
from rqretry.transport.replies import Requests, TryAgain
from rqretry.transport.topology import Node, Topology, key_of

RedisNode = Node[Any]
T = TypeVar("T")


class Turn(Generic[T]):
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
        """Its first step, where that can be sent ahead: a call that needs no confirmation."""
        step = self.step
        return step if isinstance(step, Command) and not step.confirm else None


class Share:
    """The part of a batch that goes to one server in one round trip, in the order of the batch.

    Attributes:
        node: The server.
        places: Which commands of the batch.
        count: How many replies to read.
    """

    def __init__(
        self, node: Node[Any], commands: Sequence[Command[Any]], *, asking: bool = False
    ) -> None:
        self.node = node
        self.places: list[int] = []
        self._asking = asking
        self._commands = commands
        self._loads = 0
        self.count = 0

    def requests(self) -> Requests:
        """What to send."""
        mine = [self._commands[place] for place in self.places]
        loads = self.node.wire.loads(mine)
        self._loads = len(loads)
        for command in mine:
            loads += self._words(command)
        self.count = len(loads)
        return loads

    def unknown(self, replies: list[Any]) -> Requests:
        """What to send because a script was not known; [] in most cases.

        A single command is not preceded by its script, so this is how it gets there.
        """
        again: Requests = []
        for place, reply in zip(self.places, self._answers(replies), strict=True):
            if isinstance(reply[0], NoScriptError):
                command = self._commands[place]
                again += [self.node.wire.load(command), *self._words(command)]
        return again

    def merge(self, replies: list[Any], again: list[Any]) -> list[list[Any]]:
        """The replies to each command, those of the second round trip in their places."""
        answers = self._answers(replies)
        at = 0
        for number, place in enumerate(self.places):
            if again and isinstance(answers[number][0], NoScriptError):
                width = len(self._words(self._commands[place]))
                answers[number] = again[at + 1 + self._asking : at + 1 + width]
                at += 1 + width
        return answers

    def _words(self, command: Command[Any]) -> Requests:
        words = [self.node.wire.words(command)]
        if self._asking:
            words.insert(0, ("ASKING",))
        if command.confirm:
            check_server(command.confirm, self.node.version, self.node.url.place)
            words.append(command.confirm)
        return words

    def _answers(self, replies: list[Any]) -> list[list[Any]]:
        """The replies of each command: its own, and that of its confirmation."""
        answers: list[list[Any]] = []
        at = self._loads
        for place in self.places:
            width = 2 if self._commands[place].confirm else 1
            at += self._asking
            answers.append(replies[at : at + width])
            at += width
        return answers


class Batch:
    """Commands, until each of them has its result.

    Attributes:
        commands: What was asked for.
        results: What came of each, as far as it is known.
    """

    def __init__(self, commands: Sequence[Command[Any]]) -> None:
        self.commands = commands
        self.results: list[Any] = [None] * len(commands)
        self._open = list(range(len(commands)))
        self._again: dict[int, TryAgain] = {}
        self._sent: set[int] = set()
        self._asks: dict[int, Node[Any]] = {}
        self._errors: dict[int, Exception] = {}

    @property
    def done(self) -> bool:
        """Whether every command was answered, or refused for good."""
        return not self._open

    def shares(self, topology: Topology[Any]) -> list[Share]:
        """Divide what is open among the servers."""
        asks, self._asks, self._again = self._asks, {}, {}
        shares: dict[tuple[RedisNode, bool], Share] = {}
        for place in self._open:
            try:
                node = asks.get(place) or topology.node(key_of(self.commands[place]))
            except TryAgain as error:
                self._again[place] = error
                continue
            asking = place in asks
            share = shares.get((node, asking))
            if share is None:
                share = shares[node, asking] = Share(node, self.commands, asking=asking)
            share.places.append(place)
        return list(shares.values())

    def failed(self, share: Share, error: TryAgain) -> None:
        """The round trip of a share broke; what it carried may have happened if it was sent."""
        for place in share.places:
            self.put_off(place, error)

    def refused(self, share: Share, error: RqretryError) -> None:
        """A server cannot be used at all: repeating does not help."""
        for place in share.places:
            self._errors[place] = error
            self._open.remove(place)

    def settle(
        self, topology: Topology[Any], share: Share, answers: list[list[Any]]
    ) -> TryAgain | None:
        """A share was answered; what was wrong with the server, if something was."""
        wrong: TryAgain | None = None
        for place, (reply, *confirmed) in zip(share.places, answers, strict=True):
            command = self.commands[place]
            if topology.spread and isinstance(reply, AskError):  # MOVED is one of these
                node = topology.redirected(share.node, reply)
                if node is not None:
                    self._asks[place] = node
                self.put_off(place, share.node.wire.moved())
                continue
            try:
                result = share.node.wire.result(command, reply, confirmed)
            except TryAgain as error:
                self.put_off(place, error)
                wrong = error
                continue
            except Exception as error:  # noqa: BLE001 - raised by `check`, when all are known
                self._errors[place] = error
            else:
                self.results[place] = result
            self._open.remove(place)
        return wrong

    def check(self) -> None:
        """After an attempt.

        Raises:
            TryAgain: Something is open that is worth repeating.
            Exception: The error of the first command that was refused for good.
        """
        if self._errors:
            raise self._errors[min(self._errors)]
        if self._open:
            raise self._again[self._open[0]]

    def give_up(self, last: TryAgain) -> RqretryError:
        """What to raise when it is not repeated any more."""
        places = [place for place in self._open if place in self._sent]
        ids = [id_ for place in places for id_ in self.commands[place].ids]
        if ids:
            return AmbiguousResult(self.commands[places[0]].verb, ids, str(last.error))
        return last.error

    def put_off(self, place: int, error: TryAgain) -> None:
        """A command is worth repeating; what it carried may have happened if it was sent."""
        self._again[place] = error
        if error.sent:
            self._sent.add(place)

    def outcomes(self) -> list[Any]:
        """Each command's result, or its own error as a value: definite or ambiguous."""
        found = list(self.results)
        for place, error in self._errors.items():
            found[place] = error
        for place in self._open:
            again = self._again[place]
            ids = self.commands[place].ids
            ambiguous = place in self._sent and ids
            found[place] = (
                AmbiguousResult(self.commands[place].verb, ids, str(again.error))
                if ambiguous
                else again.error
            )
        return found
