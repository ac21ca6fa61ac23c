"""The stores of the lab: both kinds of client, one order of calls, on a real server."""

from collections.abc import Sequence
from typing import Any

from rqretry.core.errors import InvalidArgument
from rqretry.core.redis_url import RedisUrl
from rqretry.protocol.command import Block, Command, number
from rqretry.protocol.scripts import ScriptLibrary
from rqretry.testing.clock import VirtualClock
from rqretry.transport.store import Store
from rqretry.transport.store_sync import SyncStore

_CHANGES_NOTHING_READY = frozenset(
    {"lease", "feed_dlq_group", "rate_take", "succeed", "read", "peek", "stats", "dead_letters"}
)
"""What feed makes ready is for the very group that leases next."""


class LabStore(SyncStore):
    """The sync store, which also counts the calls that may have made a message ready."""

    ahead = False
    changes = 0

    def __init__(self, url: RedisUrl, library: ScriptLibrary) -> None:
        super().__init__(url, library)
        self._prepare()

    def _prepare(self) -> None:
        """Greet the server by its own clock, before the virtual one takes its place."""
        self.connect()

    def use_clock(self, clock: VirtualClock) -> None:
        """From here on the server's time is the lab's."""
        self.clock = clock

    def close(self) -> None:
        """Nothing: an app that closes its clients in mid-test does not close the lab."""

    def shut(self) -> None:
        """Close the connections."""
        super().close()

    def run_all(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Run commands; see SyncStore."""
        if any(command.verb not in _CHANGES_NOTHING_READY for command in commands):
            self.changes += 1
        return super().run_all(commands)

    def run_each(self, commands: Sequence[Command[Any]], seconds: float) -> list[Any]:
        """The same, with errors as values; nothing is lost in the lab, so nothing is repeated."""
        del seconds
        return self.run_all(commands)

    def block(self, step: Block) -> str | None:
        """A wake key that is set; waiting for one would never end.

        Raises:
            InvalidArgument: None is set, and virtual time stands still.
        """
        for key in step.keys:
            pop: Command[Any] = Command("read", (), (), lambda r: r, arguments=("ZPOPMIN", key))
            if self.run(pop):
                return key
        raise InvalidArgument(
            "wait: there is nothing to receive, and in the lab time stands still while you wait;"
            " pass wait=0, and move the clock with lab.advance()"
        )


def score(store: LabStore, key: str, id_: str | bytes) -> int | None:
    """A message's time in a sorted set, virtual milliseconds; None if it is not there."""
    command: Command[int | None] = Command("read", (), (), number, arguments=("ZSCORE", key, id_))
    return store.run(command)


def first_score(store: LabStore, key: str) -> int | None:
    """The earliest time in a sorted set; None where it is empty."""
    command: Command[list[bytes]] = Command("read", (), (), list, arguments=("ZRANGE", key, 0, 0))
    first = store.run(command)
    return score(store, key, first[0]) if first else None


class LabAsyncStore(Store):
    """The asyncio store over the sync one: calls of a test happen one after another."""

    ahead = False

    def __init__(self, store: LabStore) -> None:
        super().__init__(store.url, store.wire.scripts)
        self.clock = store.clock
        self._store = store

    async def run_all(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Run commands; a call takes a fraction of a millisecond, so nothing waits for it."""
        return self._store.run_all(commands)

    async def run_each(self, commands: Sequence[Command[Any]], seconds: float) -> list[Any]:
        """The same, with errors as values."""
        return self._store.run_each(commands, seconds)

    async def connect(self) -> None:
        """The sync store is connected."""

    async def block(self, step: Block) -> str | None:
        """See LabStore."""
        return self._store.block(step)
