"""Ending everything a group holds in one partition, in bounded calls."""

from functools import partial

from rqretry.core.errors import ConfigError
from rqretry.protocol import operate
from rqretry.protocol.command import MAX_BATCH, Operation, Pause
from rqretry.protocol.keys import GroupKeys

_ROUNDS = 20
LONGEST_PAUSE_S = 1.0


def drain(keys: GroupKeys, actor: str, byte: int = 0) -> Operation[int]:
    """Remove everything of a group that has left the route, then the group itself.

    `byte`: what stood for it; where the group has another one, it has joined again, and stays.

    Returns:
        How many messages went with it.

    Raises:
        ConfigError: The group holds something that no call removes.
    """
    if keys.source:
        return (yield from _let_go(keys))
    gone, membership = 0, bytes((byte,)) if byte else b""
    for round_ in range(_ROUNDS):
        before = gone
        gone += yield from clear_all(keys, actor, membership)
        for key in keys.lists:
            gone += yield from drop_all(keys, key, actor, membership)
        for key in (*keys.levels, keys.inflight, keys.dead):
            gone += yield from purge_all(keys, key, actor, membership)
        # What moved from one list to another meanwhile is found in the next round.
        stuck = gone == before
        if not (yield operate.leave(keys, membership=membership, stuck=stuck)):
            return gone
        if stuck:
            yield Pause(min(LONGEST_PAUSE_S, 0.01 * 2**round_))
    raise ConfigError(f"{keys} holds what cannot be removed: see rqretry fsck, and repeat this")


def _let_go(keys: GroupKeys) -> Operation[int]:
    """A group that consumes dead letters forgets its lists; the dead letters are not its own."""
    held_here = 0
    for key in (*keys.lists, *keys.levels, keys.inflight):
        held_here += yield from _length(keys, key)
    yield operate.erase_group(keys)
    return held_here


def _length(keys: GroupKeys, key: str) -> Operation[int]:
    page: operate.GroupPage = yield operate.scan_group(
        keys, key, in_list=key in keys.lists, offset=0, count=1
    )
    return page.total


def drop_all(keys: GroupKeys, key: str, actor: str, membership: bytes = b"") -> Operation[int]:
    """What a list holds now is gone; what is added meanwhile stays."""
    rest = yield from _length(keys, key)
    gone = 0
    while rest > 0:
        dropped: operate.PurgeCount = yield operate.purge_list(
            keys, key, actor=actor, limit=min(rest, MAX_BATCH), membership=membership
        )
        if dropped.window == 0:
            break
        gone += dropped.gone
        rest -= dropped.window
    return gone


def clear_all(keys: GroupKeys, actor: str, membership: bytes) -> Operation[int]:
    """What waits behind others of its message group is gone; who is out stays."""
    gone, after = 0, ""
    while True:
        page: operate.BlockedPage = yield operate.scan_blocked(keys, after=after)
        if page.members:
            command = partial(operate.purge_blocked, keys, actor=actor, membership=membership)
            gone += yield from operate.purge_each(command, page.members)
        after = page.after
        if not after:
            return gone


def purge_all(keys: GroupKeys, key: str, actor: str, membership: bytes = b"") -> Operation[int]:
    """What a sorted set holds now is gone; of what is added meanwhile, as many stay."""
    rest, gone = -1, 0
    while rest:
        page: operate.GroupPage = yield operate.scan_group(keys, key, in_list=False, offset=0)
        rest = page.total if rest < 0 else rest
        ids = page.ids[:rest]
        if not ids:
            break
        command = partial(operate.purge, keys, actor=actor, key=key, membership=membership)
        gone += yield from operate.purge_each(command, ids)
        rest -= len(ids)
    return gone
