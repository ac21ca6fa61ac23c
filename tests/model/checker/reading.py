"""From what one block of the journal changed of a message in a group to its transitions."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from rqretry.protocol.keys import group_keys, partition_keys
from tests.model.checker.keyspace import Hash, Keyspace
from tests.model.checker.places import DEFAULT_LEVELS, DELAY
from tests.model.checker.transitions import Kind, Transition

DEFAULT_RETRIES = 16
_ENTERING = frozenset({"publish", "deliver", "subscribe", "replay", "feed", ""})
_LISTS = ("ready", "retry", "order")


class VerbEntry(NamedTuple):
    """An entry of the server's history."""

    verb: str
    group: str
    worker: str
    ids: frozenset[str]


NoEntry = VerbEntry("", "", "", frozenset())


class Numbers(NamedTuple):
    """A message's delivery state in a group, as the scripts keep it (docs/decisions/0001)."""

    lease_no: int
    attempt: int
    expiries: int
    postpones: int

    @staticmethod
    def read(text: str | None, floor: str) -> "Numbers":
        """Of an entry; None where the message has none."""
        return _numbers(text or f"{floor}:1:0:0")


@lru_cache(maxsize=4096)
def _numbers(text: str) -> Numbers:
    return Numbers(*(int(word) for word in text.split(":")))


class Change:
    """One message in one group, before and after a block."""

    def __init__(
        self,
        space: Keyspace,
        namespace: str,
        owner: tuple[str, int, str, str],
        touched: dict[str, tuple[Any, Any]],
        entry: VerbEntry,
    ) -> None:
        self.topic, self.partition, self.group, self.id = owner
        self.space, self.touched = space, touched
        self._partition_keys = partition_keys(namespace, self.topic, self.partition)
        self.keys = group_keys(self._partition_keys, self.group, DEFAULT_LEVELS)
        self.config: Hash = space.hash(self.keys.config)
        self.is_view = self.config.get("view") == "1"
        named = self.id in entry.ids and entry.group in ("", self.group)
        self.verb = entry.verb if named else ""
        self.has_entry = bool(entry.verb)
        self.worker = entry.worker if named else ""
        self.leased = self._pair("inflight", self.keys.inflight)
        self.dead = (None, None) if self.is_view else self._pair("dead", self.keys.dead)
        was, now = self._pair("attempts", self.keys.attempts)
        floor = self.config.get("floor", "1")
        self.was, self.now = Numbers.read(was, floor), Numbers.read(now, floor)
        if was is None and None not in self.leased and not named:
            self.was = self.now  # the place got another floor; what was in flight kept its number

    def _pair(self, name: str, key: str) -> tuple[Any, Any]:
        if name in self.touched:
            return self.touched[name]
        value = self.space.now(key, self.id)
        return value, value

    def finished(self) -> bool:
        """The block ended the message for this group: its byte or its body went."""
        keys, before = self._partition_keys, self.space.before
        gone = self.keys.deaths if self.is_view else keys.bodies
        if before.get((gone, self.id)) is not None and self.space.now(gone, self.id) is None:
            return True
        owed = self.space.now(keys.pending, self.id)
        byte = self.config.get("byte", "")
        return owed is not None and (keys.pending, self.id) in before and byte not in owed

    def places(self) -> int:
        """In how many places the message is, or how often in one."""
        now, keys = self.space.now, self.keys
        listed = now(keys.ready, self.id) or 0, now(keys.retry, self.id) or 0
        waits = self.touched.get(DELAY, (None, None))[1]
        return sum(listed) + sum(p is not None for p in (self.leased[1], self.dead[1], waits))

    def lane(self) -> str:
        """Where the message lies now, of what the block touched."""
        if self.dead[1] is not None:
            return "dead"
        for name in ("inflight", DELAY, "ready", "retry", "order"):
            if self.touched.get(name, (None, None))[1] is not None:
                return name
        return ""

    def max_attempts(self) -> int:
        """The group's limit now; 0 for none."""
        retries = int(self.config.get("max_retries", DEFAULT_RETRIES))
        return retries + 1 if retries >= 0 else 0

    def ladder_ms(self) -> int:
        """The least wait that the policy has for the attempt that failed; -1 unknown."""
        delays = self.config.get("delays", "").split()
        if not delays:
            return -1
        wait = int(delays[min(self.was.attempt, len(delays)) - 1])
        return int(wait * (1 - float(self.config.get("jitter") or 0)))


def steps_of(change: Change, block: int, at_ms: int) -> Iterator[Transition]:
    """The transitions that a change is, in order."""
    for kind, fields in _kinds(change):
        yield Transition(
            block=block, at_ms=at_ms, kind=kind, topic=change.topic, partition=change.partition,
            group=change.group, id=change.id, lane=change.lane(), verb=change.verb,
            worker=change.worker, max_attempts=change.max_attempts(), **fields,
        )  # fmt: skip


def _kinds(change: Change) -> Iterator[tuple[Kind, dict[str, Any]]]:
    was, now = change.leased
    if change.verb == "lease" or (was is None and now is not None):
        yield Kind.LEASE, {**_lease(change.now), "until_ms": now or 0}
    elif was is not None and now is not None:
        if change.was.lease_no != change.now.lease_no:
            yield Kind.CHANGE, {**_lease(change.now), "until_ms": now, "deadline_ms": was}
        elif was != now:
            yield Kind.RENEW, {**_lease(change.now), "until_ms": now, "deadline_ms": was}
    elif was is not None:
        yield from _end(change, was)
    else:
        yield from _move(change)


def _lease(numbers: Numbers) -> dict[str, int]:
    return {"lease_no": numbers.lease_no, "attempt": numbers.attempt}


def _end(change: Change, deadline: float) -> Iterator[tuple[Kind, dict[str, Any]]]:
    kind = _end_kind(change)
    due = change.touched.get(DELAY, (None, None))[1] or 0
    fields: dict[str, Any] = {**_lease(change.was), "deadline_ms": deadline, "until_ms": due}
    if due and kind in {Kind.FAIL, Kind.EXPIRE}:
        fields["ladder_ms"] = change.ladder_ms()
    yield kind, fields
    yield from _death(change)


def _end_kind(change: Change) -> Kind:
    recorded = {
        "purge": Kind.PURGE, "succeed": Kind.SUCCEED, "fail": Kind.FAIL, "expire": Kind.EXPIRE,
        "release": Kind.RELEASE, "redrive": Kind.REDRIVE,
    }.get(change.verb)  # fmt: skip
    if recorded is not None:
        return recorded
    if change.finished():
        return Kind.SUCCEED
    was, now = change.was, change.now
    if now.expiries > was.expiries:
        return Kind.EXPIRE
    if now.lease_no > was.lease_no:
        died = change.dead[0] is None and change.dead[1] is not None
        return Kind.FAIL if died or now.attempt > was.attempt else Kind.RELEASE
    return Kind.LEFTOVER


def _death(change: Change) -> Iterator[tuple[Kind, dict[str, Any]]]:
    if change.dead[0] is None and change.dead[1] is not None:
        death = change.space.now(change.keys.deaths, change.id) or ""
        cause = " ".join(death.split(" ")[1:2])
        yield Kind.DEAD, {**_lease(change.was), "cause": cause}


def _move(change: Change) -> Iterator[tuple[Kind, dict[str, Any]]]:
    """A message that is not in flight, before and after."""
    due_was, due_now = change.touched.get(DELAY, (None, None))
    if change.verb == "purge":
        yield Kind.PURGE, {}
    elif change.dead[0] is not None and change.dead[1] is None:
        yield Kind.REDRIVE, {**_lease(change.now), "until_ms": due_now or 0}
    elif change.dead[0] is None and change.dead[1] is not None:
        yield from _death(change)
    elif due_was is not None and due_now is None:
        yield Kind.PROMOTE, {**_lease(change.now), "deadline_ms": due_was}
    elif _entered(change):
        places = change.space.hash(change._partition_keys.message_groups)
        yield Kind.ENTER, {**_lease(change.now), "order": places.get(change.id, "")}


def _entered(change: Change) -> bool:
    if change.verb not in _ENTERING or (change.has_entry and not change.verb):
        return False
    if change.touched.get("order", (None, None))[0] is not None:
        return False
    grown = (change.touched.get(name, (None, None)) for name in _LISTS)
    return any(was is None and now is not None for was, now in grown)
