"""What the keys of a partition hold, as plain Python values that a test can spell."""

from collections.abc import Sequence
from typing import Any


def values_of(client: Any, names: Sequence[str]) -> list[Any]:
    """The values of the keys, by two round trips."""
    types = client.pipeline(transaction=False)
    for name in names:
        types.type(name)
    kinds = [kind.decode() for kind in types.execute()]
    values = client.pipeline(transaction=False)
    for name, kind in zip(names, kinds, strict=True):
        _ask(values, name, kind)
    found = zip(names, kinds, values.execute(), strict=True)
    return [_plain(name, kind, value) for name, kind, value in found]


def _ask(pipeline: Any, name: str, kind: str) -> None:
    if kind == "hash":
        pipeline.hgetall(name)
    elif kind == "zset":
        pipeline.zrange(name, 0, -1, withscores=True)
    elif kind == "list":
        pipeline.lrange(name, 0, -1)
    elif kind == "stream":
        pipeline.xrange(name)
    else:
        pipeline.get(name)


def _plain(name: str, kind: str, value: Any) -> Any:
    if kind == "hash":
        return {k.decode(): v.decode(errors="replace") for k, v in value.items()}
    if kind == "zset":
        return {member.decode(): _whole(score) for member, score in value}
    if kind == "list":
        return request_parts(value)
    if kind == "stream":
        if name.endswith(":broadcast"):
            return [request_parts(list(fields)[1:]) for _, fields in value]
        return [_entry(fields) for _, fields in value]
    return value.decode()


def _entry(fields: dict[bytes, bytes]) -> str:
    return " ".join(fields[name].decode() for name in (b"e", b"g", b"w", b"i", b"d")).rstrip()


def _whole(score: float) -> float:
    return int(score) if score == int(score) else score


def request_parts(values: list[bytes]) -> list[str]:
    """Text for bytes."""
    return [value.decode() for value in values]
