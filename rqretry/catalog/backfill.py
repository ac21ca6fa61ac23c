"""Backfill: a group gets what was stored in a topic before it came, or what it had done with.

A later group of a topic begins with what is published after it came, or, on request, with what is
still stored. Then its record says that it catches up, it is paused there, and what other groups
have is given to it in pages; its record forgets the topic when nothing is left. A call that is cut
off is completed by the next start of the group, or by a reset (docs/decisions/0005).

Where a topic keeps what was consumed, a group can begin in the past, and go back to a time of its
own past (docs/decisions/0055).
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from rqretry.catalog.group_rules import refuse_ordered, refuse_tags
from rqretry.catalog.store import CatalogPart
from rqretry.core.catalog_records import GroupRecord
from rqretry.core.errors import ConfigError, show
from rqretry.core.failure_record import describe_replay
from rqretry.protocol import operate
from rqretry.protocol.command import MAX_BATCH, Command, Operation
from rqretry.protocol.keys import GroupKeys

log = logging.getLogger("rqretry")

_ROUNDS = 20
_EVER = 2**53


class Backfill(CatalogPart):
    """Gives groups what is stored."""

    def start(self, name: str) -> Operation[int]:
        """Give a group what is still stored and it does not have, in all of its topics.

        Returns:
            How many messages it got.

        Raises:
            GroupNotFound: There is no such group.
            InvalidArgument: It takes only some tags of a topic.
            QueueFull: The server is at its memory limit; the next call continues.
        """
        store = self._store
        yield from store.group(name)
        now_ms = yield from store.now_ms()

        def behind(record: GroupRecord) -> GroupRecord:
            refuse_ordered(record)
            refuse_tags(name, record.topics, record.tags)
            return record.changed(store.actor, now_ms, catching_up=record.topics, begins_ms=0)

        record = yield from store.groups.change(name, behind)
        yield from store.configure(record)
        return (yield from self.finish(record))

    def finish(self, group: GroupRecord) -> Operation[int]:
        """Give a group what it still has to get; how many messages that were."""
        given = 0
        for name in group.catching_up:
            topic = yield from self._store.topic(name)
            for number in range(topic.partitions):
                keys = self._store.group_keys(name, number, group.name)
                sources = [
                    (self._store.group_keys(name, number, other.name), other.byte)
                    for other in topic.groups
                ]
                given += yield from self._from_kept(keys, group.begins_ms)
                given += yield from catch_up(keys, sources, self._store.actor)
                given += yield from self._from_kept(keys, group.begins_ms)  # consumed meanwhile
            record = yield from self._store.strike(group.name, name, "catching_up")
            if record is not None:
                yield from self._store.configure(record, topics=set(record.topics) & {name})
        if group.catching_up:
            topics = ", ".join(group.catching_up)
            log.info("group %s got %d stored messages of %s", group.name, given, topics)
        return given

    def _from_kept(self, keys: GroupKeys, begins_ms: int) -> Operation[int]:
        if not begins_ms:
            return 0
        return (
            yield from replay_all(keys, keys.partition.kept, begins_ms, _EVER, self._store.actor)
        )

    def replay(self, name: str, since_ms: int) -> Operation[int]:
        """Deliver again what a group has consumed since a time, as far as bodies are kept.

        One that was cut off is completed by the next one, which leaves alone what was consumed
        after the first one began, unless it is asked for what was consumed since then alone.

        Returns:
            How many messages it got.

        Raises:
            GroupNotFound: There is no such group.
            QueueFull: The server is at its memory limit; the next call continues.
        """
        given, upto = yield from self._replay(name, since_ms)
        if upto <= since_ms:  # that was an earlier one
            more, _ = yield from self._replay(name, since_ms)
            given += more
        return given

    def _replay(self, name: str, since_ms: int) -> Operation[tuple[int, int]]:
        """Complete one that was cut off, or else begin; how many it gave, and until when it is."""
        store = self._store
        now_ms = yield from store.now_ms()

        def begun(old: GroupRecord) -> GroupRecord:
            since, upto = old.replaying or (since_ms, now_ms + 1)
            return replace(old, replaying=(min(since, since_ms), upto))

        record = yield from store.groups.change(name, begun)
        given, (since, upto) = 0, record.replaying
        for topic in (yield from store.topics_of(record.topics)):
            if record.ordered and topic.closed:
                raise _changing(topic.name)
            first, route = since, operate.ANY_ROUTE
            if record.ordered:  # what came before that may have to go to another partition now
                first, route = max(since, topic.grown_ms), topic.version
            for number in range(topic.partitions):
                keys = store.group_keys(topic.name, number, name)
                given += yield from replay_all(keys, keys.consumed, first, upto, store.actor, route)
        yield from store.groups.swap(name, lambda old: old and replace(old, replaying=()))
        return given, upto


def _changing(topic: str) -> ConfigError:
    return ConfigError(
        f"topic {show(topic)} is being changed; repeat this, and it continues where it was"
    )


def replay_all(
    keys: GroupKeys,
    key: str,
    since_ms: int,
    upto_ms: int,
    actor: str,
    route: int = operate.ANY_ROUTE,
) -> Operation[int]:
    """Deliver again what `key` has of this time in one partition, page by page; how many."""
    given, record = 0, describe_replay(actor)
    while True:
        page: operate.ReplayCount = yield operate.replay(
            keys, key, actor=actor, record=record, since_ms=since_ms, upto_ms=upto_ms, route=route
        )
        if page.looked < 0:
            raise _changing(keys.partition.topic)
        given += page.given
        if not page.looked:
            return given


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
        ConfigError: Messages moved between lists faster than they could be found.
    """
    if len(sources) < 2:  # noqa: PLR2004 - all that is stored is the group's own
        return 0
    given = 0
    missed_before: set[str] = set()
    for _ in range(_ROUNDS):
        found = 0
        for source, owner in sources:
            # Where a group can have a message, in the direction in which messages go.
            sets = (source.inflight, *source.levels, source.dead, source.order)
            for key in (*source.lists, *sets):
                in_list = key in source.lists
                pages = yield from _read_through(keys, key, actor, in_list=in_list, owner=owner)
                if pages is None:
                    return given  # somebody else was faster, and the group is not paused any more
                given += pages.given
                found += pages.given + pages.marked
        missed = yield from _missed(keys)
        # What no group has is being deleted: its group leaves, and has left the route.
        if not missed or (missed == missed_before and not found):
            return given
        missed_before = missed
    raise ConfigError(
        f"group {show(keys.group)} cannot catch up with topic {show(keys.partition.topic)}: its"
        " messages move too fast; start it again later, and it continues where it was"
    )


def _read_through(
    keys: GroupKeys, key: str, actor: str, *, in_list: bool, owner: int
) -> Operation[operate.CatchUpCount | None]:
    given = marked = offset = 0
    while True:
        page: operate.CatchUpCount = yield operate.catch_up(
            keys, key, actor=actor, in_list=in_list, owner=owner, offset=offset
        )
        if page.window < 0:
            return None
        given, marked = given + page.given, marked + page.marked
        offset += page.window
        if page.window < MAX_BATCH:
            return operate.CatchUpCount(offset, given, marked)


def _missed(keys: GroupKeys) -> Operation[set[str]]:
    """What the group does not have, but what every group gets later.

    That is what is scheduled, when it is due, and a half message, when it is committed.
    """
    missed = yield from _all_pages(lambda cursor: operate.backfill_check(keys, cursor))
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
