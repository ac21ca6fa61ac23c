"""What was executed about routes, settings, publishing and transactions."""

from collections.abc import Sequence
from typing import Any

from rqretry.core.envelope import decode
from rqretry.core.route import Route
from tests.model.partition import CLOSED_MS, Half
from tests.model.simulation.calls import DATE, Reading, require
from tests.model.simulation.ledger import Place, flat


class Publishes(Reading):
    """Checks the answers to those who bring messages."""

    # -- routes and settings -------------------------------------------------------------------

    def _do_subscribe(self, place: Place, keys: Any, args: Any, reply: int) -> None:
        _, version, table, first, limit, _, ordered, _, _, keep_ms, keep_bytes, _ = args
        waiting = len(place.backlog)
        if not ordered or waiting <= limit:
            newer = place.install(Route.decode(int(version), table))
            if newer:
                place.keep.configure(int(keep_ms), int(keep_bytes))
        if not waiting or not first:
            require(reply == 0, "subscribe: a backlog that is none")
            return
        place.take_backlog(first, waiting - reply)
        require(len(place.backlog) == reply, f"subscribe left {reply}, not {len(place.backlog)}")

    def _do_configure(self, place: Place, keys: Any, args: Any, reply: int) -> None:
        group = keys[1].split(":")[-2]
        ledger = place.settings_of(group)
        was_behind = ledger.settings.get("catching_up") == "1"
        ledger.configure(int(args[1]), flat(args[2:]))
        if was_behind and ledger.settings.get("catching_up") == "0":
            missed = place.missed(group, self.begins[group])
            require(not missed, f"{group} has caught up, and lacks {sorted(missed)}")
        require(reply == 0, f"configure of {group} answered {reply}")

    # -- publishing ----------------------------------------------------------------------------

    def _do_publish(self, place: Place, keys: Any, args: Any, reply: Any) -> None:
        messages = _messages(args[9 + 2 * int(args[7]) :], int(args[8]))
        self._publish(place, keys, args, messages, reply)

    def _do_publish_with_options(self, place: Place, keys: Any, args: Any, reply: Any) -> None:
        messages = _messages(args[10 + 2 * int(args[7]) :], int(args[8]))
        self._publish(place, keys, args, messages, reply)

    def _publish(
        self,
        place: Place,
        keys: Sequence[str],
        args: Sequence[Any],
        messages: Sequence[Sequence[Any]],
        reply: Any,
    ) -> None:
        version, seq, total, _, producer = args[:5]
        status = reply[0].decode()
        last = place.lanes.get(producer)
        if last is not None and last[:2] == (seq, total):
            require(status == "DUPLICATE", f"a repeated publish was answered {status}")
            require(reply[2].decode() == last[2], "a repeated publish has other verdicts")
            return
        if last is not None and last[0] >= seq:
            require(status == "LANE_CONFLICT", f"an old number in a lane was answered {status}")
            return
        if args[6]:
            front = place.lanes.get(keys[-1].rpartition(":")[2], ("", "", ""))
            gap = not f"{front[0]} {front[1]} {front[2]}".startswith(args[6])
            require((status == "LANE_GAP") == gap, f"{status} behind a call, and gap is {gap}")
            if gap:
                return
        stale = version != place.route.version
        require((status == "STALE_ROUTE") == stale, f"{status} for a route that is stale: {stale}")
        if stale or status == "AGAIN":  # another body was left behind under an id of the caller's
            return
        require(status == "OK", f"publish answered {status}")
        verdicts = "".join(self._publish_one(place, message) for message in messages)
        stated = reply[2].decode() or "A" * len(messages)
        require(stated == verdicts, f"publish answered {stated}, not {verdicts}")
        place.lanes[producer] = (seq, total, reply[2].decode())

    def _publish_one(self, place: Place, request_parts: Sequence[Any]) -> str:
        id_, data, digest, delay_ms = request_parts
        envelope = decode(data)
        place.keep.sizes[id_] = len(data)
        if not digest:
            require(id_ not in place.ever, f"{id_} is published twice")
        if isinstance(delay_ms, str) and delay_ms.startswith("@"):
            delay_ms = int(delay_ms[1:]) - DATE - self.now
        if digest and id_ in place.stored and id_ not in place.given:
            return "D"  # published before under an id that the client made
        verdict = place.publish(
            id_,
            digest,
            self.now,
            given=bool(digest),
            delay_ms=float(delay_ms or 0),
            tag=envelope.tag or "",
            name=envelope.message_group or "",
        )
        if verdict == "A":
            place.ever[id_] = place.ever.get(id_, 0) + 1
            again = place.ever[id_] > 1 and id_ not in place.gone
            require(not again, f"{id_} is stored again, as if nobody had published it")
            if envelope.message_group:
                self._check_alone(place, id_, envelope.message_group)
        return verdict

    def _check_alone(self, place: Place, id_: str, name: str) -> None:
        """A message group goes to another partition only when nothing of it is unfinished."""
        ordered = [ledger.name for ledger in place.routed() if ledger.ordered]
        for other in self.places.values():
            if other is place or other.topic != place.topic or other.observed:
                continue
            for group in ordered:
                there = other.ledger(group).waiting_for(name) if group in other.groups else ()
                require(not there, f"{id_} of {name} is stored, and elsewhere wait {there}")

    def _do_deliver(self, place: Place, keys: Any, args: Any, reply: Any) -> None:
        stale = args[0] != place.route.version
        require((reply[0] == b"STALE_ROUTE") == stale, "deliver by a route that is not the one")
        if stale:
            return
        due = [i for i, at in place.scheduled.items() if at <= self.time_of(at)]
        members = args[6 + 2 * int(args[5]) :: 2]
        if len(args) > 6 + 2 * int(args[5]):
            looked = {member.partition(" ")[0] for member in members}
            due = [id_ for id_ in due if id_ in looked]
        if self.wrong and reply[2] == 0:
            return
        require(int(reply[2]) == len(due), f"deliver moved {reply[2]}, not {len(due)}")
        others = {i: at for i, at in place.scheduled.items() if i not in due}
        place.scheduled = {i: at for i, at in place.scheduled.items() if i in due}
        place.deliver(self.now)
        place.scheduled.update(others)

    def _do_recall(self, place: Place, keys: Any, args: Any, reply: bytes) -> None:
        if args[1] in place.scheduled:  # a date, as logical time
            place.scheduled[args[1]] += self.now - self.time_of(place.scheduled[args[1]])
        verdict = place.recall(args[1], self.now)
        require(reply.decode() == verdict, f"recall answered {reply!r}, not {verdict}")
        if verdict == "OK":
            place.gone.add(args[1])

    # -- transactions --------------------------------------------------------------------------

    def decide(self, args: Any, reply: Any) -> None:
        """A transaction is decided once."""
        transaction, decision, status = args[0], args[1], reply[0].decode()
        if self.blurred and status in ("OK", "ALREADY"):
            self.decided[transaction] = decision
            return
        if status == "OK":
            require(transaction not in self.decided, f"{transaction} is decided twice")
            self.decided[transaction] = decision
        elif status == "ALREADY":
            require(self.decided.get(transaction) == decision, f"{transaction}: {decision}")

    def _do_prepare(self, place: Place, keys: Any, args: Any, reply: Any) -> None:
        version, transaction = args[:2]
        status = reply[0].decode()
        closed = place.closed.get(transaction, 0) > 0
        if closed:
            require(status == "CLOSED", f"a half after the decision was answered {status}")
            return
        late = not 0 <= self.now - int(args[3]) < CLOSED_MS
        require((status == "LATE") == late, f"{status} for a half that is late: {late}")
        if late:
            return
        stale = version != place.route.version
        require((status == "STALE_ROUTE") == stale, f"{status} for a route that is stale: {stale}")
        if stale or status == "AGAIN":
            return
        for at, recorded in zip(range(5, len(args), 7), reply[2].decode(), strict=True):
            number, id_, data, digest, tag, name = args[at : at + 6]
            place.keep.sizes[id_] = len(data)
            half = Half(transaction, int(number), tag, name)
            known = id_ in place.halves
            verdict = place.prepare(id_, digest, self.now, half, given=bool(digest))
            require(recorded == verdict, f"half {id_}: {recorded}, not {verdict}")
            if verdict == "A" and not known:
                place.ever[id_] = place.ever.get(id_, 0) + 1

    def _do_commit(self, place: Place, keys: Any, args: Any, reply: Any) -> None:
        require(self._is(args[0], "committed"), f"{args[0]} is not committed")
        moved = place.commit(args[0], int(args[2]), self.now)
        require(reply[0] == moved, f"commit moved {reply[0]}, not {moved}")

    def _do_rollback(self, place: Place, keys: Any, args: Any, reply: Any) -> None:
        require(self._is(args[0], "rolled_back"), f"{args[0]} is not rolled back")
        moved = place.rollback(args[0], self.now)
        require(reply[0] == moved, f"rollback removed {reply[0]}, not {moved}")

    def _is(self, transaction: str, decision: str) -> bool:
        return self.decided.get(transaction) == decision or self.blurred


def _messages(request_parts: Sequence[Any], count: int) -> list[Sequence[Any]]:
    """Id, envelope, digest and delay of each message; the options, if any, come behind all."""
    pairs, options = request_parts[: 2 * count], request_parts[2 * count :] or [""] * count
    read = [_text(option).split("\t") for option in options]
    return [(*pairs[2 * n : 2 * n + 2], *(*read[n], "")[:2]) for n in range(count)]


def _text(option: str | bytes) -> str:
    return option if isinstance(option, str) else option.decode("latin-1")
