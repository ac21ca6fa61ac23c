"""Records change by compare and set; here the namespace is a dict."""

from typing import Any

import pytest

from rqretry.catalog.catalog import Catalog
from rqretry.core.catalog_records import PUSH, GroupRecord, TopicRecord
from rqretry.core.errors import GroupNotFound
from rqretry.core.route import Route


class Namespace:
    """Answers reads and swaps of records; `interrupt` is called before each swap."""

    def __init__(self) -> None:
        self.catalog = Catalog("test")
        self.stored: dict[str, str] = {}
        self.swaps = 0

    def perform(self, operation: Any) -> Any:
        answer: Any = None
        while True:
            try:
                call = operation.send(answer)
            except StopIteration as end:
                return end.value
            if call.verb == "read":
                answer = self.stored.get(call.arguments[2], "")
            elif call.verb == "now":
                answer = 0
            else:
                answer = self._swap(*call.args)

    def _swap(self, name: str, old: str, new: str) -> bool:
        self.swaps += 1
        if self.swaps == 1:
            self.interrupt()
        if self.stored.get(name, "") != old:
            return False
        self.stored[name] = new
        return True

    def interrupt(self) -> None:
        """Somebody else is faster."""


def test_a_change_that_somebody_was_faster_than_is_decided_again() -> None:
    space = Namespace()
    space.stored["g"] = GroupRecord("g", PUSH).encode()

    def faster() -> None:
        space.stored["g"] = GroupRecord("g", PUSH, max_retries=7, version=2).encode()

    space.interrupt = faster  # type: ignore[method-assign]
    change = space.catalog.store.groups.change(
        "g", lambda record: record.changed("me", 5, paused=True)
    )
    changed = space.perform(change)
    assert (changed.max_retries, changed.paused, changed.version) == (7, True, 3)
    assert space.swaps == 2


def test_a_change_to_the_same_is_not_written() -> None:
    space = Namespace()
    space.stored["g"] = GroupRecord("g", PUSH).encode()
    assert space.perform(space.catalog.store.groups.change("g", lambda record: record)).name == "g"
    assert space.swaps == 0


def test_a_change_of_what_is_not_there_names_it() -> None:
    space = Namespace()
    with pytest.raises(GroupNotFound, match="no consumer group 'x' in namespace 'test'"):
        space.perform(space.catalog.store.groups.change("x", lambda record: record))
    assert (space.swaps, space.stored) == (0, {})


def test_what_was_read_last_counts_also_where_the_server_lost_what_is_newer() -> None:
    store = Catalog("test").store
    newer = TopicRecord("t", 4, version=5)
    assert store.keep(newer) is newer
    assert store.keep(TopicRecord("t", 4, version=5)) is newer
    store.noted["t", 3] = Route(version=6)
    older = TopicRecord("t", 1, version=4)
    assert store.keep(older) is older
    assert store.noted == {}
