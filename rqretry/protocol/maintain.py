"""What anybody may do for everybody, without a leader: expire, promote, feed, sweep, register."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from rqretry.protocol.command import MAX_BATCH, Command, Operation, call, number, text, texts
from rqretry.protocol.keys import GroupKeys, NamespaceKeys, PartitionKeys

_WITHOUT_DEAD = 3


class Expired(NamedTuple):
    """What an expire answered."""

    held: bool
    """Nothing may expire yet: the server's clock jumped."""
    now_ms: int
    moved: int
    """Messages expired, or milliseconds to wait where `held`."""
    dead: tuple[str, ...] = ()
    """The ids of those that had no retries left."""


class LiveWorker(NamedTuple):
    """A worker process that said, a short while ago, that it lives."""

    name: str
    about: str
    """What it says about itself: JSON."""
    since_ms: int | None


class Promoted(NamedTuple):
    """What a promote answered."""

    now_ms: int
    moved: int
    next_due_ms: int | None
    """Milliseconds until the next message is due; None for none."""


class Swept(NamedTuple):
    """What a sweep answered."""

    forgotten: int
    next_ms: int | None
    """Milliseconds until the next is to be forgotten, 0 if some are now; None for none."""
    dead: tuple[tuple[str, ...], ...] = ()
    """Of each group the dead letters that are to be purged."""


def expire(
    keys: GroupKeys,
    *,
    worker: str,
    hold_ms: int,
    random: float,
    expected_ms: int | None = None,
    limit: int = MAX_BATCH,
) -> Command[Expired]:
    """Inflight past its deadline to ready, waiting_retry or dead.

    `expected_ms` is the server time of the caller's last look at this partition and the caller's
    own monotonic time since: it shows a server's clock that jumped. Then nothing expires for a
    while, `hold_ms`.
    """
    return call(
        keys.scripts,
        "expire",
        (keys.group, worker, limit, _or_empty(expected_ms), hold_ms, random),
        _expired,
    )


def promote(
    keys: GroupKeys,
    *,
    worker: str,
    limit: int = MAX_BATCH,
    expected_ms: int | None = None,
    hold_ms: int = 0,
    level: int | None = None,
    ids: Sequence[str] = (),
    early: bool = False,
) -> Command[Promoted]:
    """Waiting_retry and due to ready; `early`: due or not.

    `level` promotes from that one alone, `ids` (of one level) these alone, `limit` at most.
    `expected_ms` and `hold_ms` are those of `expire`.
    """
    until = "+inf" if early else ""
    return call(
        keys.scripts,
        "promote",
        (keys.group, worker, limit, _or_empty(expected_ms), hold_ms, until, level or "", *ids),
        lambda reply: Promoted(int(reply[0]), int(reply[1]), number(reply[2])),
    )


def feed_dlq_group(keys: GroupKeys, *, worker: str, limit: int = MAX_BATCH) -> Command[int]:
    """Dead letters of the other group to ready of this one, which consumes them; how many."""
    return call(keys.scripts, "feed_dlq_group", (keys.group, worker, limit), int)


def sweep(
    keys: PartitionKeys, groups: Sequence[GroupKeys] = (), *, limit: int = MAX_BATCH
) -> Command[Swept]:
    """Forget what was kept for a time that is over, and name the dead letters to be purged."""
    of_groups = [key for group in groups for key in (group.config, group.dead, group.consumed)]
    return Command("sweep", (*keys.scripts["sweep"], *of_groups), (limit,), _swept)


def register(keys: NamespaceKeys, *, worker: str, about: str, ttl_ms: int) -> Command[str]:
    """A worker lives, for `ttl_ms` more (0: it says goodbye); answers the namespace's settings."""
    return call(keys.scripts, "register", (ttl_ms, worker, about), text)


def roster(
    keys: NamespaceKeys, after_ms: int = 0
) -> Command[tuple[int, list[LiveWorker], int | None]]:
    """The server's time in ms, a page of the live workers, and where the next one begins."""
    return call(keys.scripts, "roster", (after_ms,), _roster)


def live_workers(keys: NamespaceKeys) -> Operation[list[LiveWorker]]:
    """All live workers, page by page."""
    found: dict[str, LiveWorker] = {}
    after_ms: int | None = 0
    while after_ms is not None:
        _, page, after_ms = yield roster(keys, after_ms)
        found |= {worker.name: worker for worker in page}
    return list(found.values())


def _or_empty(value: int | None) -> int | str:
    return "" if value is None else value


def _expired(reply: list[Any]) -> Expired:
    dead = tuple(text(id_) for id_ in reply[3]) if len(reply) > _WITHOUT_DEAD else ()
    return Expired(reply[0] == b"HELD", int(reply[1]), int(reply[2]), dead)


def _swept(reply: list[Any]) -> Swept:
    forgotten, next_ms, *dead = reply
    return Swept(int(forgotten), number(next_ms), tuple(tuple(texts(ids)) for ids in dead))


def _roster(reply: list[Any]) -> tuple[int, list[LiveWorker], int | None]:
    now, names, abouts, since, more = reply
    rows = zip(names, abouts, since, strict=True)
    workers = [LiveWorker(_shown(name), _shown(a), number(s)) for name, a, s in rows]
    return int(now), workers, number(more)


def _shown(value: bytes) -> str:
    return value.decode(errors="replace")
