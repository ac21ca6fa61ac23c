"""The part of the catalog that starts a group in a topic: its settings, and what was stored before.

A later group of a topic begins with what is published after it came, or, on request, with what is
still stored (semantics.md section 4, decisions 6). Then its record says that it catches up, it is
paused there, and what other groups have is given to it in pages; its record forgets the topic when
nothing is left. A call that is cut off is completed by the next start of the group, or by a reset.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rqretry.catalog.dlq_groups import ViewCatalog, missing
from rqretry.core.catalog_records import GroupRecord
from rqretry.core.errors import ConfigError, InvalidArgument, show
from rqretry.core.limits import EARLIEST
from rqretry.protocol import operate
from rqretry.protocol.command import MAX_BATCH, Command, Operation
from rqretry.protocol.keys import GroupKeys

log = logging.getLogger("rqretry")

_ROUNDS = 20


class StartingCatalog(ViewCatalog):
    """Copies a group's settings to the partitions, and gives it what was stored before it."""

    def start_again(self, name: str) -> Operation[int]:
        """Give a group what is still stored and it does not have, in all of its topics.

        Returns:
            How many messages it got.

        Raises:
            GroupNotFound: There is no such group.
            InvalidArgument: It takes only some tags of a topic.
            QueueFull: The server is at its memory limit; the next call goes on.
        """
        yield from self.group(name)
        now_ms = yield from self.now_ms()

        def behind(old: str) -> str:
            if not old:
                raise missing(name, self.namespace)
            record = GroupRecord.decode(name, old)
            refuse_ordered(record)
            refuse_tags(name, record.topics, record.tags)
            return record.changed(self.actor, now_ms, catching_up=record.topics).encode()

        stored = yield from self._change(self.keys.groups, name, behind)
        record = GroupRecord.decode(name, stored)
        yield from self._configure(record)
        return (yield from self._finish_catching_up(record))

    def _finish_catching_up(self, group: GroupRecord) -> Operation[int]:
        given = 0
        for name in group.catching_up:
            topic = yield from self.refreshed(name)
            for number in range(topic.partitions):
                keys = self.group_keys(name, number, group.name)
                sources = [
                    (self.group_keys(name, number, other.name), other.byte)
                    for other in topic.groups
                ]
                given += yield from catch_up(keys, sources, self.actor)
            yield from self._caught_up(group.name, name)
        if group.catching_up:
            said = "group %s got %d stored messages of %s"
            log.info(said, group.name, given, ", ".join(group.catching_up))
        return given

    def _caught_up(self, group: str, topic: str) -> Operation[None]:
        def done(old: str) -> str:
            if not old:
                return old
            record = GroupRecord.decode(group, old)
            rest = tuple(name for name in record.catching_up if name != topic)
            return record.changed(
                record.changed_by, record.changed_at_ms, catching_up=rest
            ).encode()

        stored = yield from self._change(self.keys.groups, group, done)
        if stored:
            record = GroupRecord.decode(group, stored)
            yield from self._configure(record, topics=set(record.topics) & {topic})


def refuse_ordered(record: GroupRecord) -> None:
    """What is stored is found in no order. Raises InvalidArgument for an ordered group."""
    if record.ordered:
        raise InvalidArgument(
            f"group {show(record.name)} is ordered, so it cannot begin with what is stored, which"
            ' is found in no order; use "latest", or make it the first group of its topic'
        )


def refuse_tags(group: str, topics: Iterable[str], tags: Iterable[tuple[str, str]]) -> None:
    """What is stored is given unfiltered. Raises InvalidArgument for a group that wants a part."""
    filtered = dict(tags)
    for topic in topics:
        if topic in filtered:
            raise InvalidArgument(
                f"group {show(group)} takes only tags {show(filtered[topic])} of topic"
                f" {show(topic)}, so it cannot begin with what is stored, which is given"
                ' unfiltered; use "latest", or take every tag'
            )


def with_topics(
    record: GroupRecord, topics: Iterable[str], changes: Mapping[str, Any], *, start: str
) -> dict[str, Any]:
    """The changes of a group's record with topics to subscribe to. Raises InvalidArgument."""
    new = tuple(name for name in topics if name not in record.topics)
    if start != EARLIEST:
        return {**changes, "topics": record.topics + new}
    refuse_ordered(record)
    refuse_tags(record.name, new, changes.get("tags", record.tags))
    behind = record.catching_up + new
    return {**changes, "topics": record.topics + new, "catching_up": behind}


def catch_up(
    keys: GroupKeys, sources: Sequence[tuple[GroupKeys, int]], actor: str
) -> Operation[int]:
    """Give a group all that is stored in one partition and it does not have.

    Args:
        keys: The group; its configuration there says that it catches up.
        sources: The groups of the topic, itself too, each with its byte.
        actor: Who does it, for the history.

    Returns:
        How many messages it got.

    Raises:
        ConfigError: Messages moved from place to place faster than they could be found.
    """
    if len(sources) < 2:  # noqa: PLR2004 - all that is stored is the group's own
        return 0
    given = 0
    missed_before: set[str] = set()
    for _ in range(_ROUNDS):
        found = 0
        for source, owner in sources:
            for place, in_list in _places(source):
                pages = yield from _read_through(keys, place, actor, in_list=in_list, owner=owner)
                if pages is None:
                    return given  # somebody else was faster, and the group goes on
                given += pages.given
                found += pages.given + pages.marked
        missed = yield from _missed(keys)
        # What no group has is being deleted: its group leaves, and has left the route.
        if not missed or (missed == missed_before and not found):
            return given
        missed_before = missed
    raise ConfigError(
        f"group {show(keys.group)} cannot catch up with topic {show(keys.partition.topic)}: its"
        " messages move too fast; start it again later, and it goes on where it was"
    )


def _read_through(
    keys: GroupKeys, place: str, actor: str, *, in_list: bool, owner: int
) -> Operation[operate.CaughtUp | None]:
    given = marked = offset = 0
    while True:
        step: Command[operate.CaughtUp] = operate.catch_up(
            keys, place, actor=actor, in_list=in_list, owner=owner, offset=offset
        )
        page = yield step
        if page.window < 0:
            return None
        given, marked = given + page.given, marked + page.marked
        offset += page.window
        if page.window < MAX_BATCH:
            return operate.CaughtUp(offset, given, marked)


def _places(keys: GroupKeys) -> Iterator[tuple[str, bool]]:
    """Where a group can have a message, in the direction in which messages go."""
    yield keys.ready, True
    yield keys.retry, True
    yield keys.inflight, False
    for level in keys.levels:
        yield level, False
    yield keys.dead, False
    yield keys.line, False


def _missed(keys: GroupKeys) -> Operation[set[str]]:
    """What the group does not have, but what every group gets later.

    That is what is scheduled, when it is due, and a half message, when it is committed.
    """
    missed = yield from _all_pages(lambda cursor: operate.missed(keys, cursor))
    if missed:
        missed -= yield from _all_pages(lambda at: operate.scheduled_ids(keys.partition, at))
        missed -= yield from _all_pages(lambda at: operate.half_ids(keys.partition, at))
    return missed


def _all_pages(page: Callable[[str], Command[tuple[str, list[str]]]]) -> Operation[set[str]]:
    found: set[str] = set()
    cursor = "0"
    while True:
        cursor, ids = yield page(cursor)
        found.update(ids)
        if cursor == "0":
            return found
