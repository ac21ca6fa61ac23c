"""Ending everything a group holds in one partition, in bounded calls."""

from rqretry.protocol.command import MAX_BATCH, Command, Operation
from rqretry.protocol.keys import GroupKeys
from rqretry.protocol.operate import (
    Blocked,
    Dropped,
    Held,
    erase_group,
    leave,
    purge,
    purge_blocked,
    purge_list,
    scan_blocked,
    scan_group,
)


def drain(keys: GroupKeys, actor: str) -> Operation[int]:
    """Remove everything of a group that has left the route, then the group itself.

    Returns:
        How many messages it gave up.
    """
    if keys.source:
        return (yield from _let_go(keys))
    gone = 0
    while True:
        gone += yield from clear_all(keys, actor)
        for key in (keys.ready, keys.retry):
            gone += yield from drop_all(keys, key, actor)
        for key in (*keys.levels, keys.inflight, keys.dead):
            gone += yield from purge_all(keys, key, actor)
        # What moved from one list to another meanwhile is found in the next round.
        if not (yield leave(keys)):
            return gone


def _let_go(keys: GroupKeys) -> Operation[int]:
    """A group that consumes dead letters forgets its lists; the dead letters are not its own."""
    held_here = 0
    for key in (keys.ready, keys.retry, *keys.levels, keys.inflight):
        look: Command[Held] = scan_group(
            keys, key, in_list=key in (keys.ready, keys.retry), offset=0, count=1
        )
        held_here += (yield look).total
    yield erase_group(keys)
    return held_here


def drop_all(keys: GroupKeys, key: str, actor: str) -> Operation[int]:
    """What a list holds now is gone; what is added meanwhile stays."""
    rest = (yield scan_group(keys, key, in_list=True, offset=0, count=1)).total
    gone = 0
    while rest > 0:
        step: Command[Dropped] = purge_list(keys, key, actor=actor, limit=min(rest, MAX_BATCH))
        dropped = yield step
        if dropped.window == 0:
            break
        gone += dropped.gone
        rest -= dropped.window
    return gone


def clear_all(keys: GroupKeys, actor: str) -> Operation[int]:
    """What waits behind others of its message group is gone; who is out stays."""
    gone, after = 0, ""
    while True:
        look: Command[Blocked] = scan_blocked(keys, after=after)
        page = yield look
        if page.members:
            verdicts: list[bytes] = yield purge_blocked(keys, page.members, actor=actor)
            gone += verdicts.count(b"OK")
        after = page.after
        if not after:
            return gone


def purge_all(keys: GroupKeys, key: str, actor: str) -> Operation[int]:
    """What a sorted set holds now is gone; of what is added meanwhile, as many stay."""
    rest, gone = 1, 0
    first = True
    while rest > 0:
        look: Command[Held] = scan_group(keys, key, in_list=False, offset=0)
        page = yield look
        if first:
            rest, first = page.total, False
        ids = page.ids[:rest]
        if not ids:
            break
        verdicts: list[bytes] = yield purge(keys, ids, actor=actor, key=key)
        gone += verdicts.count(b"OK")
        rest -= len(ids)
    return gone
