"""Compares what the server holds with what the model says, all of a partition in one call."""

from collections.abc import Mapping, Sequence
from typing import Any

from rqretry.checks.snapshot import in_order, message_group_of
from rqretry.protocol.keys import partition_keys
from rqretry.protocol.publish import scheduled_member
from tests.model.model import BLOCKED, DEAD, DONE, INFLIGHT, READY, RETRY, WAITING
from tests.model.simulation.calls import NAMESPACE, Broken, require
from tests.model.simulation.ledger import Ledger, Place
from tests.model.simulation.server import Arguments, Server

DUMP = """
local readers = {
  h = function(key) return redis.call('HGETALL', key) end,
  k = function(key) return redis.call('HKEYS', key) end,
  l = function(key) return redis.call('LRANGE', key, 0, -1) end,
  z = function(key) return redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end,
}
local out = {}
for i, key in ipairs(KEYS) do
  out[i] = readers[string.sub(ARGV[1], i, i)](key)
end
return out
"""
_PARTITION = (
    ("k", "bodies"), ("h", "pending"), ("z", "scheduled"), ("l", "backlog"), ("h", "half_of"),
    ("z", "halves"), ("h", "message_groups"), ("h", "counters"),
    ("z", "kept"), ("k", "kept_bodies"), ("k", "incoming"), ("k", "big"),
    ("k", "ids"),
)  # fmt: skip
_GROUP = (
    ("l", "ready"), ("l", "retry"), ("z", "inflight"), ("z", "dead"), ("h", "attempts"),
    ("z", "order"), ("h", "heads"), ("z", "due"), ("h", "config"),
    ("z", "consumed"),
)  # fmt: skip

Held = dict[str, Any]


class Looker:
    """Looks at partitions of one namespace."""

    def __init__(self, server: Server, levels: int) -> None:
        self._server = server
        self._levels = levels
        self._kinds = "".join(kind for kind, _ in _GROUP) + "z" * levels
        self._requests: dict[tuple[Any, ...], Arguments] = {}
        self.load()
        self.highest: dict[tuple[str, int, str, str, int], int] = {}

    def request(self, number: int, place: Place) -> Arguments:
        """What to ask the server for `read`."""
        known = (place.topic, number, *place.groups)
        if known not in self._requests:
            self._requests[known] = self._spelled(number, place)
        return self._requests[known]

    def _spelled(self, number: int, place: Place) -> Arguments:
        keys = partition_keys(NAMESPACE, place.topic, number)
        wanted = [getattr(keys, name) for _, name in _PARTITION]
        kinds = "".join(kind for kind, _ in _PARTITION)
        for name in place.groups:
            group = keys.group(name, self._levels)
            wanted += [getattr(group, name) for _, name in _GROUP]
            wanted += group.levels
            kinds += self._kinds
        return ("EVALSHA", self._sha, len(wanted), *wanted, kinds)

    def read(self, names: Sequence[str], reply: Any) -> tuple[Held, dict[str, Held]]:
        """Everything that says where a message is: of the partition, and of each group."""
        at = len(_PARTITION)
        ours = {name: _READ[kind](r) for (kind, name), r in zip(_PARTITION, reply, strict=False)}
        unadopted = {*ours["incoming"]} - {*ours["big"]}
        ours["bodies"] = [id_ for id_ in ours["bodies"] if id_ not in unadopted]
        groups: dict[str, Held] = {}
        for name in names:
            mine = reply[at : at + len(_GROUP)]
            found: Held = {n: _READ[k](r) for (k, n), r in zip(_GROUP, mine, strict=True)}
            at += len(_GROUP)
            found["levels"] = [_scores(level) for level in reply[at : at + self._levels]]
            at += self._levels
            groups[name] = found
        return ours, groups

    def look(self, number: int, place: Place) -> tuple[Held, dict[str, Held]]:
        """Ask now."""
        (reply,) = self._server.call(self.request(number, place))
        if isinstance(reply, Exception):  # the server was started again
            self.load()
            (reply,) = self._server.call(self.request(number, place))
        return self.read(list(place.groups), reply)

    def owed(self, number: int, place: Place, name: str) -> tuple[set[str], set[str]]:
        """What a group is noted to owe, and what anybody is."""
        pending, letter = self.look(number, place)[0]["pending"], place.ledger(name).letter
        return {id_ for id_, letters in pending.items() if letter in letters}, {*pending}

    def listed(self, number: int, place: Place, name: str, lane: str) -> set[str]:
        """What a lane of a group holds."""
        return {*self.look(number, place)[1][name][lane]}

    def load(self) -> None:
        """Make the script known."""
        self._sha = self._server.call(("SCRIPT", "LOAD", DUMP))[0]

    def check(self, number: int, place: Place) -> None:
        """Look now, and raise Broken where the two differ."""
        self.compare(number, place, *self.look(number, place))

    def compare(self, number: int, place: Place, held: Held, groups: dict[str, Held]) -> None:
        """Raise Broken where the two differ."""
        _compare_partition(place, held)
        _compare_kept(place, held, groups)
        for name, found in groups.items():
            ledger = place.ledger(name)
            try:
                _compare_group(place, ledger, found)
                _compare_numbers(ledger, found["attempts"])
                self._check_numbers(number, place, ledger)
                _count(ledger, held["counters"])
            except Broken as broken:
                raise Broken(f"{place.topic}:{number}, group {name}: {broken}") from None

    def _check_numbers(self, number: int, place: Place, ledger: Ledger) -> None:
        for id_, one in ledger.leases.items():
            life = place.ever.get(id_, 0)  # whoever purges a message may publish its id again
            key = (place.topic, number, ledger.name, id_, life)
            require(one.lease_no >= self.highest.get(key, 0), f"{id_}: a lease number went back")
            self.highest[key] = one.lease_no


def _compare_partition(place: Place, held: Held) -> None:
    _same("bodies", set(held["bodies"]), place.stored.keys())
    given, held_ids = place.given.keys(), {*held["ids"]}
    _same("ids of callers", held_ids - given, set())
    _same("ids that are free", (given & place.stored.keys()) - held_ids, set())
    members = {scheduled_member(i, place.tags[i]): t for i, t in place.scheduled.items()}
    _same("scheduled", held["scheduled"], members)
    _same("backlog", held["backlog"], place.backlog)
    halves = {id_: half.member(id_) for id_, half in place.halves.items()}
    _same("half_of", held["half_of"], halves)
    _same("halves", set(held["halves"]), set(halves.values()))
    letters = {ledger.letter: ledger.name for ledger in place.routed()}
    pending = {i: {letters[byte] for byte in owed} for i, owed in held["pending"].items()}
    _same("pending", pending, {i: place.owing(i) for i in place.shared if place.owing(i)})
    named = {i: message_group_of(slot) for i, slot in held["message_groups"].items()}
    _same("message groups", named, place.names)


def _compare_kept(place: Place, held: Held, groups: dict[str, Held]) -> None:
    consumed = {name: found["consumed"] for name, found in groups.items()}
    place.keep.settle_doubts({*held["kept"]}, {name: {*ids} for name, ids in consumed.items()})
    _same("kept", held["kept"], {id_: one.at for id_, one in place.keep.kept.items()})
    bodies = {id_ for id_ in held["kept_bodies"] if not id_.startswith("\0")}
    _same("kept bodies", bodies, place.keep.kept.keys())
    for name, ids in consumed.items():
        _same(f"consumed by {name}", ids, place.keep.consumed.get(name, {}))


def _compare_group(place: Place, ledger: Ledger, found: Held) -> None:
    listed = [*found["ready"], *found["retry"]]
    require(len(listed) == len(set(listed)), f"twice in the lists: {listed}")
    by_place: dict[str, dict[str, int]] = {INFLIGHT: {}, WAITING: {}, DEAD: {}}
    expected: dict[str, str] = {}
    for id_, one in ledger.leases.items():
        if one.place in by_place:
            by_place[one.place][id_] = one.until
        elif one.place not in (DONE, BLOCKED):
            expected[id_] = one.place
    lanes = dict.fromkeys(found["ready"], READY) | dict.fromkeys(found["retry"], RETRY)
    _same("ready", lanes, expected)
    _same("inflight", found["inflight"], by_place[INFLIGHT])
    _same("dead", found["dead"], by_place[DEAD])
    waiting: dict[str, float] = {}
    for level, members in enumerate(found["levels"], start=1):
        require(not waiting.keys() & members.keys(), f"waits twice: {members}")
        waiting |= members
        if members:
            noted = found["due"].get(str(level))
            late = noted is None or noted > min(members.values())
            require(not late, f"level {level} is due earlier than its index says")
    _same("waiting", waiting, by_place[WAITING])
    line: dict[str, list[str]] = {}
    for name, id_ in map(in_order, found["order"]):
        line.setdefault(name, []).append(id_)
    _same("lines", line, ledger.line)
    _same("heads", found["heads"], ledger.heads)
    if ledger.ordered:
        _check_turns(ledger)


def _check_turns(ledger: Ledger) -> None:
    """At most one of a message group is out, and each message group has one that is."""
    out: dict[str, str] = {}
    for id_, one in ledger.leases.items():
        name = ledger.names.get(id_)
        if not name or one.place not in (READY, RETRY, INFLIGHT):
            continue
        require(name not in out, f"{id_} and {out.get(name)} of {name} are out")
        out[name] = id_


def _compare_numbers(ledger: Ledger, attempts: Mapping[str, str]) -> None:
    for id_, one in ledger.leases.items():
        if one.place == DONE:
            require(id_ not in attempts, f"{id_} is done and keeps {attempts.get(id_)}")
            continue
        held = attempts.get(id_, f"{ledger.floor}:1:0:0")
        number, _, rest = held.partition(":")
        least = 0 if one.place == INFLIGHT else ledger.floor  # the next lease has no lower number
        same = max(int(number), least) == max(one.lease_no, least)
        same = same and rest == f"{one.attempt}:{one.expiries}:{one.postpones}"
        require(same, f"{id_} has {held}, the model says {one}")
    require(attempts.keys() <= ledger.leases.keys(), "numbers of a message that is not there")


def _count(ledger: Ledger, counters: Mapping[str, str]) -> None:
    """Published - committed - purged is what is here."""

    def figure(verb: str) -> int:
        return int(counters.get(f"{verb}:{ledger.name}", 0))

    here = sum(one.place != DONE for one in ledger.leases.values())
    stated = figure("publish") - figure("succeed") - figure("purge")
    require(stated == here, f"the counters say {stated} messages, and {here} are here")


def _same(what: str, held: Any, wanted: Any) -> None:
    if held != wanted:
        raise Broken(f"{what}: the server holds {held}, the model says {wanted}")


def _text(value: bytes) -> str:
    return value.decode("latin-1")


def _pairs(reply: list[bytes]) -> dict[str, str]:
    request_parts = [_text(word) for word in reply]
    return dict(zip(request_parts[::2], request_parts[1::2], strict=True))


def _scores(reply: list[bytes]) -> dict[str, float]:
    return {_text(m): float(s) for m, s in zip(reply[::2], reply[1::2], strict=True)}


def _arguments(reply: list[bytes]) -> list[str]:
    return [_text(word) for word in reply]


_READ = {"h": _pairs, "k": _arguments, "l": _arguments, "z": _scores}
