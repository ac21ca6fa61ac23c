"""Where a named broadcast consumer is, is kept whenever it has moved."""

from collections.abc import Sequence
from typing import Any, cast

from rqretry.core.middleware import Announcer, Hooks
from rqretry.protocol.broadcast import Mark
from rqretry.protocol.command import Command
from rqretry.protocol.keys import partition_keys
from rqretry.worker.broadcast import Broadcaster, BroadcastResults, Position


class Recorder:
    """A store that answers nothing, and remembers what it was given."""

    patience = 1.0

    def __init__(self) -> None:
        self.ran: list[Command[Any]] = []

    async def run_each(self, commands: Sequence[Command[Any]], _seconds: float) -> list[Any]:
        self.ran += commands
        return []


class Place:
    """A group in a partition."""

    keys = partition_keys("n", "t", 0).group("g", 18)


async def test_a_position_that_moved_is_kept_even_where_nothing_was_counted() -> None:
    position = Position(cast("Any", Place()), Mark("1-0", 1), cast("Any", None), "reader")
    results = BroadcastResults(Announcer(Hooks()), "w")
    results.begin([position])
    store: Any = Recorder()
    broadcaster = Broadcaster(store, (), results, cast("Any", None), cast("Any", None))
    position.done = Mark("2-0", 3)  # what was counted is already with the server
    await broadcaster.count()
    assert [command.verb for command in store.ran] == ["keep_at"]
    await broadcaster.count()
    assert len(store.ran) == 1
