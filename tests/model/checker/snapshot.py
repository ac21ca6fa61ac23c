"""The keys of a namespace as they are at the end of a run, when nothing works on them any more."""

from typing import Any

import redis

from rqretry.protocol.keys import ROOT
from tests.model.checker.keyspace import Keyspace, Listed, SortedSet, Streamed, Value

_PAGE = 1000


def take_snapshot(client: redis.Redis, namespace: str) -> Keyspace:
    """Read every key of a namespace.

    Stop all workers and tickers before: a snapshot is read key by key.

    Args:
        client: redis-py on the server (on a cluster: on one primary), in its default settings.
        namespace: Whose keys.
    """
    values = {}
    for key in client.scan_iter(match=f"{ROOT}:{namespace}:*", count=_PAGE):
        value = _value(client, key)
        if value:
            values[key.decode("latin-1")] = value
    return Keyspace(values)


def _value(client: Any, key: bytes) -> Value:
    kind = client.type(key)
    if kind == b"hash":
        return {_text(field): _text(value) for field, value in client.hgetall(key).items()}
    if kind == b"zset":
        scored = client.zrange(key, 0, -1, withscores=True)
        return SortedSet((_text(member), score) for member, score in scored)
    if kind == b"list":
        return Listed(map(_text, client.lrange(key, 0, -1)))
    if kind == b"stream":
        entries = client.xrange(key)
        return Streamed((_text(id_), [_text(f) for f in fields]) for id_, fields in entries)
    return _text(client.get(key) or b"")


def _text(data: bytes) -> str:
    return data.decode("latin-1")


def disagreements(replayed: Keyspace, found: Keyspace, namespace: str) -> list[str]:
    """Where the journal and the snapshot tell of different keys, one sentence each.

    What ends by itself is left out (the memory of producers), and so are streams, of which the
    server drops the oldest entries in steps of its own.
    """
    prefix = f"{ROOT}:{namespace}:"
    keys = {key for key in replayed.values if key.startswith(prefix)} | found.values.keys()
    stated = []
    for key in sorted(keys):
        here, there = replayed.values.get(key), found.values.get(key)
        if "}:lane:" in key or isinstance(here, Streamed) or isinstance(there, Streamed):
            continue
        if here != there:
            stated.append(
                f"{key}: the journal ends with {_cut(here)}, the server has {_cut(there)}"
            )
    return stated


def _cut(value: Value | None) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 120 else f"{text[:120]}…"
