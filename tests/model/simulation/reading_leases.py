"""What was executed about leases, upkeep, and by operators."""

from collections.abc import Sequence
from typing import Any

from rqretry.checks.snapshot import in_order
from tests.model.model import BLOCKED, DEAD, INFLIGHT, READY, RETRY, WAITING, Lease
from tests.model.simulation.calls import Reading, number_of, require
from tests.model.simulation.deliveries import Fairness, begins, is_released
from tests.model.simulation.ledger import UNLIMITED, Ledger, Place

_MOST = 500
_FIRST_CONSUMED = 10
"""Of the keys of a sweep."""
_LEAST_ARGUMENTS = 3
"""Of a failure that asks for nothing."""


class Leases(Reading):
    """Checks the answers to those who take messages.

    Attributes:
        turns: See Fairness.
        fairness: By group.
    """

    def __init__(self) -> None:
        super().__init__()
        self.turns = 0
        self.fairness: dict[str, Fairness] = {}

    # -- leases --------------------------------------------------------------------------------

    def _do_lease(self, place: Place, keys: Any, args: Any, reply: Any) -> None:
        status = reply[0].decode()
        name, want, visibility_ms = args[0], int(args[2]), int(args[4])
        known = place.groups.get(name)
        if status == "NO_GROUP":
            require(known is None or not place.ledger(name).settings, f"{name} is configured")
            return
        ledger = place.ledger(name)
        ids = [id_.decode() for id_ in reply[5]]
        require((status == "PAUSED") == ledger.paused, f"{status}, and paused is {ledger.paused}")
        room = UNLIMITED if ledger.most is None else ledger.most - len(ledger.at(INFLIGHT))
        ready = ledger.listed() if status != "PAUSED" and room > 0 else set()
        require(len(ids) <= room or not ids, f"{name} has more in flight than it may")
        entries = reply[7].decode().split(" ") if reply[7] else ["-"] * len(ids)
        if ids:
            require(reply[11] >= ledger.floor, f"leases of {name} have number {reply[11]} again")
            ledger.floor, place.floor = reply[11], max(reply[11], place.floor)
        for id_, entry in zip(ids, entries, strict=True):
            require(id_ in ready, f"{id_} is leased by {name} and was {self._where(ledger, id_)}")
            one = ledger.leased(id_, self.now + visibility_ms)
            one.lease_no = max(one.lease_no, ledger.floor)
            self._compare_entry(id_, one, entry, ledger.floor)
            require(one.attempt <= max(ledger.most_attempts, 1), f"{id_}: attempt {one.attempt}")
            begins(ledger, id_, one.attempt)
        least = min(want, room, len(ready)) if status != "RATED" else 0
        require(len(ids) >= least, f"lease gave {len(ids)} of {least}")
        if ids and ledger.kind == "simple":
            places = [each for each in self.places.values() if each.topic == place.topic]
            self.fairness.setdefault(name, Fairness(self.turns)).served(name, places)

    def _compare_entry(self, id_: str, one: Lease, entry: str, floor: int) -> None:
        numbers = [floor, 1] if entry == "-" else [int(word) for word in entry.split(":")[:2]]
        require(numbers == [one.lease_no, one.attempt], f"{id_}: {entry}, the model says {one}")

    def _where(self, ledger: Ledger, id_: str) -> str:
        return str(ledger.leases.get(id_, "unknown"))

    def _settled(
        self,
        ledger: Ledger,
        args: Sequence[Any],
        first: int,
        stride: int,
        reply: Sequence[bytes],
        *,
        strict: bool = False,
    ) -> list[tuple[str, int]]:
        """The receipts that won, with where their words begin; the others must have lost."""
        won, seen = [], set()
        for at, recorded in zip(range(first, len(args), stride), reply, strict=False):
            id_, lease_no = args[at], int(args[at + 1])
            verdict = ledger.verdict(id_, lease_no)
            if verdict == "OK" and (
                id_ in seen or (strict and ledger.leases[id_].until <= self.now)
            ):
                verdict = "STALE"
            stated = recorded.decode() if recorded in (b"STALE", b"GONE") else "OK"
            require(stated == verdict, f"{id_}/{lease_no}: {stated}, and it is {verdict}")
            if verdict == "OK":
                seen.add(id_)
                won.append((id_, at))
        return won

    def _do_renew(self, place: Place, keys: Any, args: Any, reply: Any) -> None:
        ledger = place.ledger(keys[2].split(":")[-2])
        for id_, _ in self._settled(ledger, args, 2, 2, reply):
            one = ledger.leases[id_]
            one.until = max(one.until, self.now + int(args[0]))

    def _do_succeed(self, place: Place, keys: Any, args: Any, reply: Any) -> None:
        ledger = place.ledger(args[0])
        won = self._settled(ledger, args, 3, 2, reply, strict=args[2] == 1)
        place.succeed(args[0], [id_ for id_, _ in won], self.now)

    def _do_fail(self, place: Place, keys: Any, args: Any, reply: Any) -> None:
        ledger = place.ledger(args[0])
        first, request_parts = 5 + 2 * int(args[2]), int(args[3])
        answers = dict(zip(range(first, len(args), request_parts), reply, strict=False))
        for id_, at in self._settled(ledger, args, first, request_parts, reply):
            level, delay = (
                (int(args[at + 2]), args[at + 3]) if request_parts > _LEAST_ARGUMENTS else (0, "")
            )
            ledger.fail(id_, self.now, level=level, delay_ms=None if delay == "" else int(delay))
            one, recorded = ledger.leases[id_], answers[at].decode().split(",")
            require((recorded[1] == "D") == (one.place == DEAD), f"{id_}: {recorded}, and is {one}")
            if one.place == WAITING:
                require(
                    int(float(recorded[3])) == one.until, f"{id_} waits until {recorded[3]}: {one}"
                )

    def _do_release(self, place: Place, keys: Any, args: Any, reply: Any) -> None:
        ledger, back = place.ledger(args[0]), []
        by_hand = ledger.kind == "simple"
        answers = dict(zip(range(3, len(args), 3), reply, strict=True))
        for id_, at in self._settled(ledger, args, 3, 3, reply, strict=by_hand):
            one, delay = ledger.leases[id_], args[at + 2]
            bounded = by_hand or delay != ""
            limit = bounded and one.postpones >= int(args[2])
            require((answers[at] == b"LIMIT") == limit, f"{id_}: {answers[at]}, {one}")
            if limit:
                continue
            one.postpones += bounded
            is_released(ledger, id_, bounded=bounded)
            if delay == "":
                back.append(id_)
            else:
                one.next(WAITING, self.now + int(delay))
        ledger.give_back(back)

    def _do_change_visibility(self, place: Place, keys: Any, args: Any, reply: Any) -> None:
        ledger = place.ledger(args[0])
        duration, dead = int(args[2]), []
        for id_, _ in self._settled(ledger, args, 3, 2, reply[0], strict=True):
            one = ledger.leases[id_]
            one.lease_no += 1
            if duration:
                one.until = self.now + duration
            else:
                ledger.end_delivery(id_, self.now)
                dead += [id_.encode()] if one.place == DEAD else []
        require(reply[2] == dead, f"{reply[2]} are dead, not {dead}")

    # -- upkeep --------------------------------------------------------------------------------

    def _do_expire(self, place: Place, keys: Any, args: Any, reply: Any) -> None:
        if args[0] not in place.groups:
            return
        ledger = place.ledger(args[0])
        if self.wrong and reply[0] == b"HELD":
            return
        require(reply[0] == b"OK", "expiry is held up, and no clock has jumped")
        count = min(_MOST, ledger.overdue(self.now)) if ledger.settings else 0
        require(reply[2] == count, f"{reply[2]} have expired, not {count}")
        if ledger.settings:
            ledger.expire(self.now)

    def _do_promote(self, place: Place, keys: Any, args: Any, reply: Any) -> None:
        if args[0] not in place.groups:
            return
        ledger = place.ledger(args[0])
        waiting = ledger.at(WAITING)
        chosen = args[7:]
        due = sorted(
            (until, id_)
            for id_, until in waiting.items()
            if (id_ in chosen if chosen else args[5] == "+inf" or until <= self.now)
        )
        require(not args[6] or chosen, "a level is promoted without ids")
        if self.wrong and reply[1] == 0 and not chosen:
            return
        require(int(reply[1]) == len(due), f"{reply[1]} are promoted, not {len(due)}")
        for _, id_ in due:
            ledger.wake(id_, next(place.order))

    # -- operators -----------------------------------------------------------------------------

    def _do_dead_letter(self, place: Place, keys: Any, args: Any, reply: Any) -> None:
        ledger, died = place.ledger(args[0]), [id_.decode() for id_ in reply[1]]
        asked = {id_ for id_, answer in zip(args[4::2], args[5::2], strict=True) if int(answer)}
        for id_ in died:
            one = ledger.leases.get(id_)
            fit = one is not None and one.place in (READY, RETRY, WAITING, BLOCKED)
            require(fit, f"{id_} is dead by hand, and was {one}")
            require(
                id_ in asked or args[2] == "order", f"{id_} is dead by hand, and was not chosen"
            )
            ledger.end_by_hand(id_, self.now)
        if args[2] == "zset" and not self.wrong:
            left = asked & ledger.at(WAITING).keys()
            require(not left, f"{left} were to die, and wait")

    def _do_redrive(self, place: Place, keys: Any, args: Any, reply: Any) -> None:
        ledger, now = place.ledger(args[0]), []
        for at, recorded in zip(range(2, len(args), 3), reply, strict=True):
            id_ = args[at]
            dead = id_ in ledger.leases and ledger.leases[id_].place == DEAD
            require((recorded == b"OK") == dead, f"redrive of {id_}: {recorded}")
            if not dead:
                continue
            ledger.redriven.add(id_)
            del ledger.counted[id_], ledger.released[id_]
            if args[at + 1] == "":
                now.append(id_)
                continue
            one = ledger.leases[id_]
            one.next(WAITING, self.now + int(args[at + 1]))
            one.attempt, one.expiries, one.postpones = 1, 0, 0
        ledger.redrive(now, place.order)

    def _do_replay(self, place: Place, keys: Any, args: Any, reply: Any) -> None:
        if args[0] not in place.groups:
            require(reply == [0, 0], f"a replay for a group that is not there: {reply}")
            return
        since, upto = int(args[3]), int(args[4])
        newer = place.route.version > int(args[6])
        require((reply[0] < 0) == newer, f"a replay behind a newer route ({newer}): {reply}")
        if newer:
            return
        kept = keys[12] == keys[10]
        asked = (self.begins if kept else self.asked)[args[0]]
        require(since >= asked, f"{args[0]} goes back to {since}, not {asked}")
        future = not kept and upto > self.now + 1 and not self.wrong
        require(not future, f"{args[0]} replays what it has not consumed")
        found = place.replay(args[0], since, upto, self.now, int(args[5]), kept=kept)
        require(tuple(reply) == found, f"a replay looked at and gave {reply}, not {found}")

    def _do_catch_up(self, place: Place, keys: Any, args: Any, reply: Any) -> None:
        ledger, page = place.groups.get(args[0]), reply[0]
        behind = ledger and place.ledger(args[0]).settings.get("catching_up") == "1"
        require((page >= 0) == bool(behind), f"{args[0]} catches up: {behind}, and {reply}")
        if page > 0:
            found = place.catch_up(
                args[0], *self.owed(number_of(keys[0]), place, args[0]), self.now
            )
            require(tuple(reply[1:]) == found, f"a page gave and marked {reply[1:]}, not {found}")

    def _do_sweep(self, place: Place, keys: Any, args: Any, reply: Any) -> None:
        groups = [key.split(":")[-2] for key in keys[_FIRST_CONSUMED::3]]
        place.keep.sweep(self.now, int(args[0]), groups)

    def _do_purge(self, place: Place, keys: Any, args: Any, reply: Any) -> None:
        ledger = place.ledger(args[0])
        wanted = {"dead": DEAD, "inflight": INFLIGHT}.get(keys[4].split(":")[-1], WAITING)
        for id_, recorded in zip(args[3:], reply, strict=True):
            here = id_ in ledger.leases and ledger.leases[id_].place == wanted
            require((recorded == b"OK") == here, f"purge of {id_}: {recorded}")
            if here:
                place.purge(args[0], id_, self.now)

    def _do_purge_blocked(self, place: Place, keys: Any, args: Any, reply: Any) -> None:
        ledger = place.ledger(args[0])
        for member, recorded in zip(args[3:], reply, strict=True):
            _, id_ = in_order(member)
            one = ledger.leases.get(id_)
            blocked = one is not None and one.place == BLOCKED
            require(recorded != b"OK" or blocked, f"{id_} is purged as blocked, and was {one}")
            # Who came again has another number in line than the member that was read before.
            again = id_ in ledger.redriven or place.ever[id_] > 1
            require(recorded == b"OK" or not blocked or again, f"purge of {id_}: {recorded}, {one}")
            if recorded == b"OK":
                place.purge(args[0], id_, self.now)

    def _do_purge_list(self, place: Place, keys: Any, args: Any, reply: Any) -> None:
        """The answer says how many went, and what the list holds now says who."""
        ledger, lane, (count, window) = place.ledger(args[0]), keys[2].split(":")[-1], reply
        before = ledger.at(lane)
        gone = before.keys() - self.listed(number_of(keys[0]), place, args[0], lane)
        named = {id_: int(goes) for id_, goes in zip(args[4::2], args[5::2], strict=True)}
        chosen = {id_ for id_ in before if named.get(id_, not named)}
        require(count == len(gone), f"{count} of {lane} are purged, and {sorted(gone)} are gone")
        require(gone <= chosen, f"{sorted(gone - chosen)} are purged, and were not chosen")
        most = min(len(before), int(args[2]))
        whole = not named or named.keys() >= before.keys()
        passed = window == most if whole else window <= most
        require(passed, f"a purge went past {window} of {most}")
        left = chosen - gone
        require(not left or window < len(before), f"{sorted(left)} were to go, and are in {lane}")
        for id_ in sorted(gone):
            place.purge(args[0], id_, self.now)
