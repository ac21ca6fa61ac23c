"""What still holds after a script was cut: the model cannot know where everything is then.

A script that fails in its middle (a command that is denied, a key of another type) keeps what it
wrote, so each message it named may be before or after the step, and ids may be left over in lists.
From there on a partition is observed instead of foretold: what was seen before a call, and what the
call was answered, say what may be seen after it. Nothing may be lost, no lease may be taken twice,
an old receipt changes nothing; and in the end everything that was accepted is done or dead.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rqretry.checks.snapshot import in_order
from rqretry.protocol.publish import id_of_member
from tests.model.model import DONE, INFLIGHT
from tests.model.simulation.calls import require
from tests.model.simulation.ledger import Ledger, Place
from tests.model.simulation.looking import Held, Looker

_ENDING = frozenset({"succeed", "purge", "purge_list", "purge_blocked", "recall", "rollback"})
_ALL_LISTED = 4
"""Words of a purge of a list that names no messages."""
_SETTLING = {"renew": (2, 2), "succeed": (3, 2), "release": (3, 3), "change_visibility": (3, 2)}


@dataclass(frozen=True)
class Seen:
    """A partition as it was seen.

    Attributes:
        common: What no group has yet: scheduled, half, or in the backlog.
        held: By group, what it has in any place, or will get.
        live: By group, the lease number of what is in flight.
        dead: By group, its dead letters.
        numbers: By group and id, the lease number.
        ending: What a cut settle left in flight without a body, until its lease ends.
        halves: What of `common` belongs to a transaction.
        given: Ids of callers that are remembered.
    """

    common: frozenset[str]
    held: dict[str, frozenset[str]]
    live: dict[str, dict[str, int]]
    dead: dict[str, frozenset[str]]
    numbers: dict[tuple[str, str], int]
    ending: frozenset[str] = frozenset()
    halves: frozenset[str] = frozenset()
    given: frozenset[str] = frozenset()


class Observer:
    """Watches one partition from the moment of its first cut."""

    def __init__(self, looker: Looker, number: int, place: Place, *, looks: bool = False) -> None:
        self._looker = looker
        self._number = number
        self._place = place
        self.ever: set[str] = set()
        """Ids that it was seen to hold."""
        self._before = self.look() if looks else modelled(place)

    def read(
        self, verb: str, args: Sequence[Any], reply: Any, *, cut: bool, denied: bool = False
    ) -> None:
        """One call was executed, maybe not to its end. Raises Broken."""
        before, after = self._before, self.look()
        self._before = after
        self.ever.update(after.common, *after.held.values())
        ended = _ended(verb, args, before)
        for group, ids in before.held.items():
            lost = ids - after.held.get(group, frozenset()) - ended
            require(not lost, f"{group} has lost {sorted(lost)} in {verb}")
            for id_ in ids & after.held[group]:
                old, new = before.numbers.get((group, id_), 1), after.numbers.get((group, id_), 1)
                require(new >= old, f"{id_}: lease number {new} after {old}, in {verb}")
        given = after.common.union(*after.held.values())
        freed = (before.given - after.given) & given
        require(not freed, f"{sorted(freed)} are stored, and free again, in {verb}")
        filtered = any(group.tags != "*" for group in self._place.route.groups)
        lost = before.common - given - ended
        require(not lost or filtered, f"{sorted(lost)} are lost in {verb}")
        if denied and verb == "lease":
            require(after.live == before.live, f"a refused lease has leased: {after.live}")
        if not cut:
            self._check_answer(verb, args, reply, before)

    def _check_answer(self, verb: str, args: Sequence[Any], reply: Any, before: Seen) -> None:
        if verb == "lease" and reply[0] != b"NO_GROUP":
            live = before.live.get(args[0], {})
            for id_ in map(bytes.decode, reply[5]):
                require(id_ not in live, f"{id_} is leased twice by {args[0]}")
        elif verb in _SETTLING and len(args) > _SETTLING[verb][0]:
            first, stride = _SETTLING[verb]
            group = self._group(verb, args)
            verdicts = reply[0] if verb == "change_visibility" else reply
            for at, recorded in zip(range(first, len(args), stride), verdicts, strict=True):
                won = recorded not in (b"STALE", b"GONE")
                live_no = before.live.get(group, {}).get(args[at]) if group else args[at + 1]
                # A call that was cut before its end has left only that to do.
                rest = verb == "succeed" and args[at] not in before.held.get(group, ())
                if args[at] in before.dead.get(group, ()):  # it still has the number of its lease
                    live_no = before.numbers[group, args[at]]
                won = won and not rest
                require(not won or live_no == args[at + 1], f"{args[at : at + 2]} won in {verb}")

    def _group(self, verb: str, args: Sequence[Any]) -> str:
        return "" if verb == "renew" else args[0]

    def look(self) -> Seen:
        """As it is now."""
        return seen(self._place, *self._looker.look(self._number, self._place))

    def unfinished(self) -> set[str]:
        """What somebody still has to see to."""
        now = self._before
        held = (ids - now.dead[group] for group, ids in now.held.items())
        return set(now.common | now.ending).union(*held)

    def halves(self) -> frozenset[str]:
        """What is the half of a transaction."""
        return self._before.halves


def _ended(verb: str, args: Sequence[Any], before: Seen) -> set[str]:
    """What a call may have removed."""
    if verb not in _ENDING:
        return set()
    if verb == "rollback":  # it names the transaction
        return set(before.common)
    if verb == "purge_blocked":
        return {id_ for _, id_ in map(in_order, args[3:])}
    if verb == "purge_list" and len(args) > _ALL_LISTED:
        return {id_ for id_, goes in zip(args[4::2], args[5::2], strict=True) if int(goes)}
    if verb == "purge_list":
        group = args[0]
        return set(before.held.get(group, ())) - before.dead[group] - before.live[group].keys()
    return {arg for arg in args if isinstance(arg, str)}


def modelled(place: Place) -> Seen:
    """A partition as the model has it."""
    ledgers = [group for group in place.groups.values() if isinstance(group, Ledger)]
    return Seen(
        frozenset({*place.scheduled, *place.halves, *place.backlog}),
        {g.name: frozenset(i for i, one in g.leases.items() if one.place != DONE) for g in ledgers},
        {
            g.name: {i: one.lease_no for i, one in g.leases.items() if one.place == INFLIGHT}
            for g in ledgers
        },
        {g.name: frozenset() for g in ledgers},
        {(g.name, i): one.lease_no for g in ledgers for i, one in g.leases.items()},
        given=frozenset(place.given.keys() & place.stored.keys()),
    )


def seen(place: Place, held: Held, groups: dict[str, Held]) -> Seen:
    """A partition as the server has it; what has no body, or is owed no more, is left over."""
    bodies, pending = set(held["bodies"]), held["pending"]
    common = {*map(id_of_member, held["scheduled"]), *held["backlog"], *held["half_of"]}
    kept: dict[str, frozenset[str]] = {}
    live: dict[str, dict[str, int]] = {}
    dead: dict[str, frozenset[str]] = {}
    numbers: dict[tuple[str, str], int] = {}
    for name, found in groups.items():
        letter, floor = place.ledger(name).letter, int(found["config"].get("floor", 1))
        owed = {i for i in _everywhere(found) & bodies if letter in pending.get(i, letter)}
        kept[name], dead[name] = frozenset(owed), frozenset(owed & found["dead"].keys())
        for id_ in _everywhere(found):
            numbers[name, id_] = int(found["attempts"].get(id_, str(floor)).split(":")[0])
        live[name] = {
            i: numbers.get((name, i), 1) for i in found["inflight"] if i in owed - dead[name]
        }
    ending = frozenset(i for found in groups.values() for i in found["inflight"]) - bodies
    halves = frozenset(held["half_of"])
    given = frozenset(held["ids"])
    return Seen(frozenset(common & bodies), kept, live, dead, numbers, ending, halves, given)


def _everywhere(found: Held) -> set[str]:
    levels: Iterable[dict[str, float]] = found["levels"]
    line = {id_ for _, id_ in map(in_order, found["order"])}
    lists = {*found["ready"], *found["retry"], *found["inflight"], *found["dead"]}
    return line | lists.union(*levels)
