"""A small model of Redis: the keys of a run, by replaying what its server wrote, or as they are.

Both ways must end in the same keys; if they do not, the run cannot be judged.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any

Hash = dict[str, str]


class SortedSet(dict[str, float]):
    """Member to score."""


class Listed:
    """A list, and how often each member is in it."""

    def __init__(self, members: Iterable[str] = ()) -> None:
        self.members = deque(members)
        self.counts = Counter(self.members)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Listed) and self.members == other.members

    def __len__(self) -> int:
        return len(self.members)

    def __repr__(self) -> str:
        return f"Listed({list(self.members)})"

    __hash__ = None  # type: ignore[assignment] # it changes


class Streamed(dict[str, list[str]]):
    """Entry id to fields; only entries that are still there."""


Value = str | Hash | SortedSet | Listed | Streamed


class UnknownCommandError(ValueError):
    """Raised for a write that the model does not know: the run cannot be judged."""


class Keyspace:
    """Keys and their values.

    Attributes:
        values: By key; what is empty is not there.
        before: What was under (key, member) before `apply` first touched it since the last
            `forget`: the old value or score, how often it was in a list, None for nothing.
    """

    def __init__(self, values: dict[str, Value] | None = None) -> None:
        self.values: dict[str, Value] = dict(values or {})
        self.before: dict[tuple[str, str], Any] = {}

    def apply(self, request_parts: list[str]) -> None:
        """Do what a command of an append-only file says. Raises UnknownCommandError."""
        verb = request_parts[0].upper()
        handler = _COMMANDS.get(verb)
        if handler is None:
            raise UnknownCommandError(f"the journal has a command that is not known here: {verb}")
        handler(self, request_parts[1:])

    def forget(self) -> None:
        """Start to note anew what is touched."""
        self.before.clear()

    def text(self, key: str) -> str:
        """A string, "" for none."""
        value = self.values.get(key, "")
        return value if isinstance(value, str) else ""

    def hash(self, key: str) -> Hash:
        """A hash, empty for none."""
        value = self.values.get(key)
        return value if isinstance(value, dict) and type(value) is dict else {}  # type: ignore[return-value]

    def scores(self, key: str) -> dict[str, float]:
        """A sorted set, empty for none."""
        value = self.values.get(key)
        return value if isinstance(value, SortedSet) else {}

    def listed(self, key: str) -> list[str]:
        """A list, empty for none."""
        value = self.values.get(key)
        return list(value.members) if isinstance(value, Listed) else []

    def now(self, key: str, member: str) -> Any:
        """What is under (key, member), as `before` tells what was."""
        value = self.values.get(key)
        if isinstance(value, Listed):
            return value.counts.get(member, 0)
        return value.get(member) if isinstance(value, dict) else None

    # What commands are made of

    def _open(self, key: str, kind: type[Any]) -> Any:
        value = self.values.get(key)
        if value is None:
            value = self.values[key] = kind()
        if type(value) is not kind:
            raise ValueError(f"{key} is a {type(value).__name__}, not a {kind.__name__}")
        return value

    def _note(self, key: str, member: str, old: Any) -> None:
        self.before.setdefault((key, member), old)

    def _close(self, key: str) -> None:
        if not self.values.get(key):
            self.values.pop(key, None)

    def _put(self, key: str, kind: type[Any], member: str, value: Any) -> None:
        held = self._open(key, kind)
        self._note(key, member, held.get(member))
        held[member] = value

    def _take(self, key: str, kind: type[Any], members: Iterable[str]) -> None:
        held = self._open(key, kind)
        for member in members:
            if member in held:
                self._note(key, member, held.pop(member))
        self._close(key)

    def push(self, key: str, members: Iterable[str], *, left: bool = False) -> None:
        """Into a list."""
        held = self._open(key, Listed)
        for member in members:
            self._note(key, member, held.counts[member])
            held.counts[member] += 1
            (held.members.appendleft if left else held.members.append)(member)

    def pull(self, key: str, *, left: bool) -> str | None:
        """Out of a list, its first or last member."""
        held = self._open(key, Listed)
        member: str | None = None
        if held.members:
            member = held.members.popleft() if left else held.members.pop()
            self._note(key, member, held.counts[member])
            held.counts[member] -= 1
            if not held.counts[member]:
                del held.counts[member]
        self._close(key)
        return member

    def drop(self, key: str) -> None:
        """Delete a key, noting what was in it."""
        value = self.values.pop(key, None)
        if isinstance(value, Listed):
            for member, count in value.counts.items():
                self._note(key, member, count)
        elif isinstance(value, dict):
            for member, old in value.items():
                self._note(key, member, old)


def _set(space: Keyspace, args: list[str]) -> None:
    space.values[args[0]] = args[1]


def _set_with_time(space: Keyspace, args: list[str]) -> None:
    space.values[args[0]] = args[2]


def _delete(space: Keyspace, args: list[str]) -> None:
    for key in args:
        space.drop(key)


def _flush(space: Keyspace, _: list[str]) -> None:
    space.values.clear()


def _increase(space: Keyspace, args: list[str]) -> None:
    by = int(args[1]) if len(args) > 1 else 1
    space.values[args[0]] = str(int(space.text(args[0]) or 0) + by)


def _hset(space: Keyspace, args: list[str]) -> None:
    for field, value in zip(args[1::2], args[2::2], strict=True):
        space._put(args[0], dict, field, value)


def _hsetnx(space: Keyspace, args: list[str]) -> None:
    if args[1] not in space.hash(args[0]):
        space._put(args[0], dict, args[1], args[2])


def _hdel(space: Keyspace, args: list[str]) -> None:
    space._take(args[0], dict, args[1:])


def _hincrby(space: Keyspace, args: list[str]) -> None:
    old = space.hash(args[0]).get(args[1], "0")
    space._put(args[0], dict, args[1], str(int(old) + int(args[2])))


def _rpush(space: Keyspace, args: list[str]) -> None:
    space.push(args[0], args[1:])


def _lpush(space: Keyspace, args: list[str]) -> None:
    space.push(args[0], args[1:], left=True)


def _lpop(space: Keyspace, args: list[str]) -> None:
    for _ in range(int(args[1]) if len(args) > 1 else 1):
        space.pull(args[0], left=True)


def _rpop(space: Keyspace, args: list[str]) -> None:
    for _ in range(int(args[1]) if len(args) > 1 else 1):
        space.pull(args[0], left=False)


def _ltrim(space: Keyspace, args: list[str]) -> None:
    held = space.values.get(args[0])
    length = len(held) if isinstance(held, Listed) else 0
    first, last = (int(word) + (length if int(word) < 0 else 0) for word in args[1:3])
    first, last = max(first, 0), min(last, length - 1)
    kept = max(0, last - first + 1)
    for _ in range(length - 1 - last if kept else length):
        space.pull(args[0], left=False)
    for _ in range(first if kept else 0):
        space.pull(args[0], left=True)


def _lmove(space: Keyspace, args: list[str]) -> None:
    member = space.pull(args[0], left=args[2].upper() == "LEFT")
    if member is not None:
        space.push(args[1], [member], left=args[3].upper() == "LEFT")


def _lrem(space: Keyspace, args: list[str]) -> None:
    members, count = space.listed(args[0]), int(args[1])
    doomed = [at for at, member in enumerate(members) if member == args[2]]
    doomed = doomed[count:] if count < 0 else doomed[: count or None]
    for _ in members:
        space.pull(args[0], left=True)
    space.push(args[0], (member for at, member in enumerate(members) if at not in doomed))


def _rename(space: Keyspace, args: list[str]) -> None:
    value = space.values.get(args[0])
    space.drop(args[1])
    space.drop(args[0])
    if isinstance(value, Listed):
        space.push(args[1], value.members)
    elif isinstance(value, dict):
        for member, held in value.items():
            space._put(args[1], type(value), member, held)
    elif value is not None:
        space.values[args[1]] = value


def _zadd(space: Keyspace, args: list[str]) -> None:
    key, rest, flags = args[0], args[1:], set()
    while rest[0].upper() in {"NX", "XX", "GT", "LT", "CH"}:
        flags.add(rest.pop(0).upper())
    held = space.scores(key)
    for score_text, member in zip(rest[::2], rest[1::2], strict=True):
        old, score = held.get(member), float(score_text)
        refused = (
            (old is None and "XX" in flags)
            or (old is not None and "NX" in flags)
            or (old is not None and "GT" in flags and score <= old)
            or (old is not None and "LT" in flags and score >= old)
        )
        if not refused:
            space._put(key, SortedSet, member, score)


def _zrem(space: Keyspace, args: list[str]) -> None:
    space._take(args[0], SortedSet, args[1:])


def _zpopmin(space: Keyspace, args: list[str]) -> None:
    held = space.scores(args[0])
    firsts = sorted(held, key=lambda member: (held[member], member))
    space._take(args[0], SortedSet, firsts[: int(args[1]) if len(args) > 1 else 1])


def _bound(word: str) -> tuple[float, bool]:
    return float(word.removeprefix("(")), word.startswith("(")


def _zremrangebyrank(space: Keyspace, args: list[str]) -> None:
    held = space.scores(args[0])
    firsts = sorted(held, key=lambda member: (held[member], member))
    least, most = (int(arg) + (len(firsts) if int(arg) < 0 else 0) for arg in args[1:3])
    space._take(args[0], SortedSet, firsts[least : most + 1])


def _zremrangebyscore(space: Keyspace, args: list[str]) -> None:
    (least, above), (most, below) = _bound(args[1]), _bound(args[2])
    doomed = [
        member
        for member, score in space.scores(args[0]).items()
        if (score > least or (score == least and not above))
        and (score < most or (score == most and not below))
    ]
    space._take(args[0], SortedSet, doomed)


def _xadd(space: Keyspace, args: list[str]) -> None:
    rest = args[1:]
    while rest[0].upper() in {"NOMKSTREAM", "MAXLEN", "MINID"}:
        request_parts = 1 if rest[0].upper() == "NOMKSTREAM" else 3 if rest[1] in "=~" else 2
        rest = rest[request_parts:]
        if rest[0].upper() == "LIMIT":
            rest = rest[2:]
    space._put(args[0], Streamed, rest[0], rest[1:])


def _xdel(space: Keyspace, args: list[str]) -> None:
    space._take(args[0], Streamed, args[1:])


def _nothing(_space: Keyspace, _args: list[str]) -> None:
    """It changes a time to live, or what is not kept here."""


_COMMANDS: dict[str, Callable[[Keyspace, list[str]], None]] = {
    "SET": _set, "SETEX": _set_with_time, "PSETEX": _set_with_time, "DEL": _delete,
    "UNLINK": _delete, "FLUSHALL": _flush, "FLUSHDB": _flush, "INCR": _increase,
    "INCRBY": _increase, "HSET": _hset, "HMSET": _hset, "HSETNX": _hsetnx, "HDEL": _hdel,
    "HINCRBY": _hincrby, "RPUSH": _rpush, "LPUSH": _lpush, "LPOP": _lpop, "RPOP": _rpop,
    "LTRIM": _ltrim, "LMOVE": _lmove, "LREM": _lrem, "RENAME": _rename, "ZADD": _zadd,
    "ZREM": _zrem, "ZPOPMIN": _zpopmin, "ZREMRANGEBYSCORE": _zremrangebyscore,
    "ZREMRANGEBYRANK": _zremrangebyrank, "XADD": _xadd, "XDEL": _xdel, "XTRIM": _nothing,
    "XSETID": _nothing, "PEXPIREAT": _nothing,
    "PEXPIRE": _nothing, "EXPIRE": _nothing, "EXPIREAT": _nothing, "PERSIST": _nothing,
    "SCRIPT": _nothing, "FUNCTION": _nothing, "PUBLISH": _nothing,
}  # fmt: skip
