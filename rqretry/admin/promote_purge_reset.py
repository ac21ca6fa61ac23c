"""Operations that move or delete messages: promote, dead_letter, purge, reset."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

from rqretry.admin.context import AdminContext
from rqretry.admin.dead_letter_filter import (
    DeadLetterFilter,
    DeadLettersInOrder,
    chosen,
    count_dead_letters,
)
from rqretry.admin.endings import Ending, end, matching
from rqretry.admin.views import date
from rqretry.catalog.store import Place
from rqretry.core.catalog_records import GroupRecord
from rqretry.core.envelope import decode
from rqretry.core.errors import CodecError, ConfigError, InvalidArgument, refuse, show
from rqretry.core.failure_record import BY_HAND, describe_cause
from rqretry.core.limits import check_count, check_group
from rqretry.core.start import LATEST, check_start
from rqretry.protocol import maintain, operate
from rqretry.protocol.command import MAX_BATCH, Operation, batches
from rqretry.protocol.inspect import Peeked, Stats, peek, read_due, stats
from rqretry.protocol.keys import GroupKeys
from rqretry.protocol.publish import scheduled_member

STATES = ("dead", "ready", "waiting_retry")
_MOST_LOOKED_AT = 10


def promote(
    context: AdminContext,
    /,
    group: str,
    filter: DeadLetterFilter | None = None,  # noqa: A002 - the name of the contract
    *,
    level: int | None = None,
    dry_run: bool = False,
    **fields: Any,
) -> Operation[int]:
    """Run waiting retries now, whatever their due time; their attempts still count.

    Args:
        group: The group's name.
        filter: Which ones, by ids, topic, fingerprint or error of the last failure; default
            all. Its fields can be given as keywords instead.
        level: Only those waiting at this level, 1 for the shortest; default all.
        dry_run: Only count them.
        fields: The filter's fields, if no filter is given.

    Returns:
        How many were promoted (or would be).

    Raises:
        GroupNotFound: There is no such group.
        InvalidArgument: The filter or the level is invalid, or what it names is scheduled.
    """
    wanted = _not_by_death(chosen(filter, fields, default_all=True))
    if level is not None:
        check_count(level, name="level")
    record = yield from context.catalog.groups.get(check_group(group))
    table = yield from context.catalog.open()
    if level is not None:
        check_count(level, name="level", maximum=len(table))
    moved, places = 0, (yield from context.places_now(record, wanted.topic))
    for place in places:
        for number, key in enumerate(place.keys.levels, start=1):
            if level in (None, number):
                moved += yield from _promote(context, place, key, number, wanted, dry_run=dry_run)
    yield from _refuse_scheduled(places, wanted, moved)
    if not dry_run:
        arguments = {"group": group, "level": level} | wanted.given()
        yield from context.audit("promote", arguments, {"messages": moved})
    return moved


def _promote(
    context: AdminContext,
    place: Place,
    key: str,
    level: int,
    wanted: DeadLetterFilter,
    *,
    dry_run: bool,
) -> Operation[int]:
    ids = yield from matching(place, key, wanted)
    if dry_run:
        return len(ids)
    moved = 0
    for batch in batches(ids):
        step = maintain.promote(
            place.keys, worker=context.actor, level=level, ids=batch, early=True
        )
        moved += (yield step).moved
    return moved


def dead_letter(
    context: AdminContext,
    /,
    group: str,
    filter: DeadLetterFilter | None = None,  # noqa: A002 - the name of the contract
    *,
    reason: str = "",
    dry_run: bool = False,
    **fields: Any,
) -> Operation[int]:
    """Move unfinished messages of a group to its dead letters, without another attempt.

    Those that are ready, blocked behind another one of their message group, or waiting for a retry;
    in an ordered group the next one of their message group goes. What a consumer holds stays, and
    so does what is scheduled, which is no group's yet (recall it).

    Args:
        group: The group's name.
        filter: Which ones (or, instead, as keywords): ids=, topic=, fingerprint=, error=, or
            all=True.
        reason: Why, for the failure record; their cause of death is "by_hand".
        dry_run: Only count them.
        fields: The filter's fields, if no filter is given.

    Returns:
        How many are dead letters now (or would be).

    Raises:
        GroupNotFound: There is no such group.
        InvalidArgument: The filter selects nothing in particular (pass all=True), or what it names
            is scheduled.
        ConfigError: The group has no dead letters: it is a broadcast group, or consumes those of
            another one.
    """
    wanted = _not_by_death(chosen(filter, fields, default_all=False))
    record = yield from context.catalog.groups.get(check_group(group))
    _refuse_view(record, "dead-letter")
    if record.kind == "broadcast":
        raise ConfigError(
            f"dead-letter {show(group)}: a broadcast group keeps nothing and has no dead letters"
        )
    ending = Ending(context.actor, describe_cause(BY_HAND, reason, context.actor))
    gone, places = 0, (yield from context.places_now(record, wanted.topic, promote=True))
    for place in places:
        for state in ("ready", "waiting_retry"):
            gone += yield from end(ending, place, state, wanted, dry_run=dry_run)
    yield from _refuse_scheduled(places, wanted, gone)
    if not dry_run:
        arguments = {"group": group, "reason": reason or None} | wanted.given()
        yield from context.audit("dead_letter", arguments, {"messages": gone})
    return gone


def purge(
    context: AdminContext,
    /,
    group: str,
    filter: DeadLetterFilter | None = None,  # noqa: A002 - the name of the contract
    *,
    state: str = "dead",
    dry_run: bool = False,
    **fields: Any,
) -> Operation[int]:
    """Delete messages of a group for good; other groups keep theirs.

    Args:
        group: The group's name.
        filter: Which ones (or, instead, as keywords): ids=, topic=, fingerprint=, error=, or
            all=True; since= and before= for dead letters only.
        state: "dead" (the default), "ready" (new messages and retries that can be delivered now)
            or "waiting_retry".
        dry_run: Only count them.
        fields: The filter's fields, if no filter is given.

    Returns:
        How many were deleted (or would be).

    Raises:
        GroupNotFound: There is no such group.
        InvalidArgument: The filter selects nothing in particular (pass all=True), or there is
            no such state.
    """
    if state not in STATES:
        refuse("state", state, f"is not one of {', '.join(STATES)}")
    wanted = chosen(filter, fields, default_all=False)
    if state != "dead":
        _not_by_death(wanted)
    record = yield from context.catalog.groups.get(check_group(group))
    _refuse_view(record, "purge")
    current = context.places_now(record, wanted.topic, promote=state != "dead")
    places, gone = (yield from current), 0
    if state == "dead" and (dry_run or not wanted.takes_all):
        gone = yield from _purge_dead(context, places, wanted, dry_run=dry_run)
        places = []
    for place in places:
        gone += yield from end(Ending(context.actor), place, state, wanted, dry_run=dry_run)
    yield from _refuse_scheduled(places, wanted, gone)
    if not dry_run:
        arguments = {"group": group, "state": state} | wanted.given()
        yield from context.audit("purge", arguments, {"messages": gone})
    return gone


def _refuse_scheduled(
    places: Sequence[Place], wanted: DeadLetterFilter, found: int
) -> Operation[None]:
    """Raise InvalidArgument where nothing was found, and an id that was chosen is scheduled."""
    for id_ in () if found else sorted(wanted.ids or ())[:_MOST_LOOKED_AT]:
        for some in batches(places):
            peeked: list[Peeked] = yield [peek(place.keys, id_) for place in some]
            members = [
                (place.keys.partition, _member(id_, one.body))
                for place, one in zip(some, peeked, strict=True)
                if one.stored
            ]
            if any((yield [read_due(*member) for member in members])):
                raise InvalidArgument(
                    f"message {show(id_)} is published with a delay and no group's yet, so nothing"
                    f" was done: cancel it with: rqretry recall {id_} (client.recall)"
                )


def _member(id_: str, body: bytes) -> str:
    """How a message is named while it is scheduled."""
    try:
        return scheduled_member(id_, decode(body).tag or "")
    except CodecError:
        return id_


def reset(
    context: AdminContext,
    group: str,
    to: str | datetime | float = LATEST,
    *,
    dry_run: bool = False,
) -> Operation[int]:
    """Move a group to the end or to the beginning of what is stored, or to a time.

    To "latest", it skips all messages that are ready or wait for a retry; messages in flight
    finish, and dead letters stay. To "earliest", it also gets what is still stored because
    another group has not finished with it, including what it has finished itself; messages that
    it has stay as they are. It is paused meanwhile. An interrupted call is completed by the
    next one, or by the next start of the group, and adds nothing twice.

    To a time, what it has consumed since then is delivered again, as far as its topics keep it
    (`set_topic(keep=...)`): at attempt 1, under the same id, for this group only. It is not paused;
    an ordered group gets each message group in its order. An interrupted call is completed by the
    next one with a time.

    Args:
        group: The group's name.
        to: "latest" (the default): what is published from now on; "earliest": what is still stored;
            a time (an aware datetime, or seconds since the epoch): what was consumed since then,
            too.
        dry_run: Only count the messages.

    Returns:
        How many messages were skipped or added (or would be; to a time, at most).

    Raises:
        GroupNotFound: There is no such group.
        InvalidArgument: `to` is something else, or a time and the topics of the group keep nothing;
            or the group is ordered, and one of them got more partitions since then.
        ConfigError: The group is ordered, and a topic of it is being changed.
        QueueFull: The server is at its memory limit; the next call continues.
    """
    start = check_start(to, name="to")
    record = yield from context.catalog.groups.get(check_group(group))
    _refuse_view(record, "reset")
    if isinstance(start, int):
        count = yield from _replay(context, record, start, dry_run=dry_run)
    elif start == LATEST:
        count = yield from _skip(context, record, dry_run=dry_run)
    else:
        count = yield from (
            _not_held(context, record) if dry_run else context.catalog.backfill.start(group)
        )
    if not dry_run:
        shown = date(start) if isinstance(start, int) else start
        yield from context.audit("reset", {"group": group, "to": shown}, {"messages": count})
    return count


def _replay(
    context: AdminContext, record: GroupRecord, since_ms: int, *, dry_run: bool
) -> Operation[int]:
    known = yield from context.catalog.store.topics_of(record.topics)
    if not any(topic.keep_ms for topic in known):
        raise InvalidArgument(
            f"group {show(record.name)} cannot go back to a time, since no topic of it keeps what"
            " was consumed: rqretry topic set TOPIC --keep 24h keeps what is consumed from then on"
        )
    now_ms = yield from context.catalog.store.now_ms()
    for topic in known if record.ordered else ():
        if max(since_ms, now_ms - topic.keep_ms) < topic.grown_ms:
            raise InvalidArgument(
                f"to {date(since_ms)}: topic {show(topic.name)} got more partitions after that, and"
                f" ordered group {show(record.name)} would get what was consumed before beside what"
                f" is published now; give {date(topic.grown_ms + 1)} or later"
            )
    if not dry_run:
        return (yield from context.catalog.backfill.replay(record.name, since_ms))
    places = yield from context.places(record)
    return sum((yield [operate.consumed_since(place.keys, since_ms) for place in places]))


def _skip(context: AdminContext, record: GroupRecord, *, dry_run: bool) -> Operation[int]:
    everything = DeadLetterFilter(all=True)
    gone = 0
    for place in (yield from context.places(record)):
        for state in ("ready", "waiting_retry"):
            ending = Ending(context.actor)
            gone += yield from end(ending, place, state, everything, dry_run=dry_run)
    return gone


def _not_held(context: AdminContext, record: GroupRecord) -> Operation[int]:
    """How many stored messages a group does not have."""
    places = yield from context.places(record)
    parts: list[Stats] = yield [stats(place.keys) for place in places]
    return sum(max(0, part.bodies - part.scheduled - part.held) for part in parts)


def _purge_dead(
    context: AdminContext, places: Sequence[Place], wanted: DeadLetterFilter, *, dry_run: bool
) -> Operation[int]:
    """Purge dead letters as their pages are read."""
    if dry_run:
        return (yield from count_dead_letters(places, wanted))
    source, gone = DeadLettersInOrder(places, wanted, with_bodies=False), 0
    while found := (yield from source.take(MAX_BATCH)):
        by_place: dict[GroupKeys, list[str]] = {}
        for dead_letter, keys in found:
            by_place.setdefault(keys, []).append(dead_letter.id)
        for keys, ids in by_place.items():
            gone += yield from operate.purge_each(
                partial(operate.purge, keys, actor=context.actor), ids
            )
    return gone


def _refuse_view(record: GroupRecord, verb: str) -> None:
    """Raise ConfigError for a group that consumes dead letters, which belong to another group."""
    if record.source:
        raise ConfigError(
            f"{verb} {show(record.name)}: the group consumes the dead letters of"
            f" {show(record.source)}; purge those, or delete the group"
        )


def _not_by_death(wanted: DeadLetterFilter) -> DeadLetterFilter:
    if wanted.since is not None or wanted.before is not None:
        raise InvalidArgument(
            f"since and before apply to dead letters only ({show(wanted)}); use ids, topic,"
            " fingerprint or error"
        )
    return wanted
