"""A part of a batch: what goes to one server at once, with the scripts that it does not know."""

from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from rqretry.core.durability import check_server
from rqretry.protocol.command import Argument, Command
from rqretry.transport.node import Node, Requests


class OnItsWay(Protocol):
    """A call, as far as it is sent."""

    command: Command[Any]


C = TypeVar("C", bound=OnItsWay)

_AROUND = 3
"""MULTI, the command and EXEC."""

Spell = Callable[[Node, Command[Any]], tuple[Argument, ...]]


def load(node: Node, command: Command[Any]) -> tuple[Argument, ...]:
    """The request that makes the command's script known."""
    return ("SCRIPT", "LOAD", node.scripts.get(command.verb).text(node.dialect))


class Share(Generic[C]):
    """The calls of a batch that go to one server in one round trip, in their order.

    Args:
        node: The server.
        spell: How a command is sent to it.
        asking: Whether it has the keys just for this time.
        loading: Whether it forgot the scripts.
    """

    def __init__(
        self, node: Node, spell: Spell, *, asking: bool = False, loading: bool = False
    ) -> None:
        self.node = node
        self._spell = spell
        self.calls: list[C] = []
        self.asking = asking
        self.loading = loading
        self._loads = 0

    def requests(self) -> Requests:
        """What to send.

        A script that the server does not know is loaded and run again, but then it would run after
        those behind it: so scripts go ahead of a batch. A single call has none behind it; but what
        is to be executed ahead of it would be left behind.
        """
        node, loaded = self.node, self.node.loaded
        missing: dict[str, Command[Any]] = {}
        commands = [call.command for call in self.calls]
        if not self.loading and (len(commands) > 1 or commands[0].ahead):
            missing = {c.verb: c for c in commands if not c.arguments and c.verb not in loaded}
            loaded.update(missing)
        self._loads = len(missing)
        requests = [load(node, command) for command in missing.values()]
        for call in self.calls:
            requests += self._around(call.command)
        return requests

    def _around(self, command: Command[Any]) -> Iterator[tuple[Argument, ...]]:
        if self.loading:
            yield load(self.node, command)
        if self.asking:
            yield ("ASKING",)
        if command.ahead:
            yield ("MULTI",)
            yield from command.ahead
        yield self._spell(self.node, command)
        if command.ahead:
            yield ("EXEC",)
        if command.confirm:
            check_server(command.confirm, self.node.server, self.node.address)
            yield command.confirm

    def answers(self, replies: list[Any]) -> Iterator[tuple[C, list[Any]]]:
        """Each call, with the reply to it and that to its confirmation."""
        at = self._loads
        for call in self.calls:
            command = call.command
            at += self.loading + self.asking
            end = at + (len(command.ahead) + _AROUND if command.ahead else 1)
            reply = executed(replies[at:end]) if command.ahead else replies[at]
            at = end + bool(command.confirm)
            yield call, [reply, *replies[end:at]]


def executed(replies: list[Any]) -> Any:
    """What the last command of a transaction answered, by the replies to MULTI and all behind it.

    Where one was refused, none was executed; unless MULTI was, and then each was by itself.
    """
    opened, *queued, last = replies
    if isinstance(last, list):
        return last[-1]
    if isinstance(opened, Exception):
        return opened if queued[-1] == [b"AGAIN"] else queued[-1]
    return next((reply for reply in queued if isinstance(reply, Exception)), last)
