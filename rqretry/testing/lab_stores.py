"""The stores of the lab: both kinds of client, one order of calls, on a real server."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rqretry.core.errors import InvalidArgument
from rqretry.core.redis_url import RedisUrl
from rqretry.protocol.command import Argument, Block, Command, number, text
from rqretry.protocol.scripts import ScriptLibrary
from rqretry.transport.node import Procedure, Topology
from rqretry.transport.session import Session
from rqretry.transport.store import Store
from rqretry.transport.store_sync import SyncStore

T = TypeVar("T")

_CHANGES_NOTHING_READY = frozenset(
    {
        *("lease", "feed_dlq_group", "rate_take", "succeed"),
        *("read", "peek", "stats", "dead_letters", "clock"),
    }
)
"""What feed makes ready is for the very group that leases next; what is due is looked at anyway."""


def tag_of(key: str) -> str:
    """A key up to its hash tag; "" where it has none."""
    return key.rpartition("}")[0]


class LabSession(Session):
    """A session that also counts the calls that may have made a message ready."""

    ahead = False

    def __init__(self, topology: Topology, repeat_seconds: float) -> None:
        super().__init__(topology, repeat_seconds)
        self.changes = Counter[str]()
        """By hash slot; "" is all of them."""

    def run(self, command: Command[T], seconds: float | None = None) -> Procedure[T]:
        """Run one command; see Session."""
        self._count([command])
        return (yield from super().run(command, seconds))

    def run_all(self, commands: Sequence[Command[Any]]) -> Procedure[list[Any]]:
        """Run commands; see Session."""
        self._count(commands)
        return (yield from super().run_all(commands))

    def run_each(
        self, commands: Sequence[Command[Any]], seconds: float | None
    ) -> Procedure[list[Any]]:
        """The same, with errors as values; nothing is lost in the lab, so nothing is repeated."""
        del seconds
        return (yield from self.run_all(commands))

    def block(self, step: Block) -> Procedure[str | None]:
        """A wake key that is set; waiting for one would never end.

        Raises:
            InvalidArgument: None is set, and virtual time stands still.
        """
        for key in step.keys:
            pop: Command[Any] = Command("read", (), (), lambda r: r, arguments=("ZPOPMIN", key))
            if (yield from self.run(pop)):
                return key
        raise InvalidArgument(
            "wait: there is nothing to receive, and in the lab time stands still while you wait;"
            " pass wait=0, and move the clock with lab.advance()"
        )

    def _count(self, commands: Sequence[Command[Any]]) -> None:
        for command in commands:
            if command.verb not in _CHANGES_NOTHING_READY:
                key = (*command.keys, *map(text, command.arguments[1:2]), "")[0]
                self.changes[tag_of(key)] += 1


class LabStore(SyncStore):
    """The sync store, which knows when something may have become ready."""

    def __init__(self, url: RedisUrl, library: ScriptLibrary) -> None:
        super().__init__(url, library)
        self._lab_session = LabSession(self.topology, self.repeat_seconds)
        self.session = self._lab_session
        self.may_hold_up_a_loop = True  # a test has nothing else to do
        self._prepare()

    def changes(self, slots: Sequence[str]) -> int:
        """How many calls may have made a message ready in these slots."""
        changes = self._lab_session.changes
        return changes[""] + sum(changes[slot] for slot in slots)

    def _prepare(self) -> None:
        """Greet the server by its own clock, before the virtual one takes its place."""
        self.connect()

    def read(self, decode: Callable[[Any], T], *arguments: Argument) -> T:
        """The reply to a plain command that changes nothing."""
        return self.run(Command("read", (), (), decode, arguments=arguments))

    def write(self, *arguments: Argument) -> None:
        """Send a plain command that may have made a message ready."""
        self.run(Command("write", (), (), bool, arguments=arguments))

    def set_clock(self, key: str, now_ms: int) -> None:
        """Scripts read this time from now on."""
        self.run(Command("clock", (), (), bool, arguments=("SET", key, now_ms)))

    def close(self) -> None:
        """Nothing: an app that closes its clients in mid-test does not close the lab."""

    def shut(self) -> None:
        """Close the connections."""
        super().close()


def score(store: LabStore, key: str, id_: str | bytes) -> int | None:
    """A message's time in a sorted set, virtual milliseconds; None if it is not there."""
    return store.read(number, "ZSCORE", key, id_)


def first_score(store: LabStore, key: str) -> int | None:
    """The earliest time in a sorted set; None if it is empty."""
    first: list[bytes] = store.read(list, "ZRANGE", key, 0, 0)
    return score(store, key, first[0]) if first else None


class LabAsyncStore(Store):
    """The asyncio store over the sync one: calls of a test happen one after another."""

    def __init__(self, store: LabStore) -> None:
        super().__init__(store.url, store.topology.scripts)
        self.session = store.session
        self._store = store

    async def drive(self, procedure: Procedure[T]) -> T:
        """Perform a procedure at once: it takes a fraction of a millisecond."""
        return self._store.drive(procedure)

    async def aclose(self) -> None:
        """Nothing: see LabStore."""
