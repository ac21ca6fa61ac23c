"""Rules: settling, with good receipts and bad ones."""

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from rqretry.core.receipt import Receipt
from rqretry.protocol import lease
from rqretry.protocol.lease import Failure
from tests.model.checked import Settle
from tests.model.leasing import VISIBILITY_MS, Leasing, workers
from tests.model.model import DEAD, INFLIGHT, MAX_POSTPONES, WAITING
from tests.model.publishing import waits

picks = st.lists(st.integers(0, 10_000), min_size=1, max_size=4)


class Settling(Leasing):
    """Attempts end."""

    @precondition(lambda self: self.issued)
    @rule(
        verb=st.sampled_from(["renew", "succeed", "fail", "fail", "release", "postpone", "change"]),
        worker=workers,
        pick=picks,
        late=st.booleans(),
        data=st.data(),
    )
    def settle(
        self, verb: str, worker: str, pick: list[int], late: bool, data: st.DataObject
    ) -> None:
        """Receipts that the worker believes in, or late ones: any that were ever given out."""
        pool = self.issued if late else self.held[worker]
        chosen = list(dict.fromkeys(pool[n % len(pool)] for n in pick)) if pool else []
        if verb == "change":
            del chosen[1:]
        for part, name in dict.fromkeys((part, name) for part, name, _, _ in chosen):
            batch = [Receipt(i, no) for p, n, i, no in chosen if (p, n) == (part, name)]
            getattr(self, verb)(Settle(part, name, worker, batch), data)

    def renew(self, s: Settle, data: st.DataObject) -> None:
        visibility_ms = data.draw(st.sampled_from([1_000, VISIBILITY_MS, 20_000]), "visibility")
        verdicts = self.verdicts(s)
        command = lease.renew(self.group(s.part, s.name), s.batch, visibility_ms=visibility_ms)
        assert self.request_parts(self.run(command)) == verdicts
        for one in self.won(s, verdicts).values():
            one.until = max(one.until, self.now + visibility_ms)

    def succeed(self, s: Settle, data: st.DataObject) -> None:
        strict = data.draw(st.booleans(), "strict")
        verdicts = self.verdicts(s, strict=strict)
        keys = self.group(s.part, s.name)
        command = lease.succeed(keys, s.batch, worker=s.worker, strict=strict)
        assert self.request_parts(self.run(command)) == verdicts
        for id_ in self.won(s, verdicts):
            self.model[s.part].finish(s.name, id_, self.now)

    def fail(self, s: Settle, data: st.DataObject) -> None:
        level = data.draw(st.sampled_from([0, 0, 0, 1, 2, 99, -1]), "level")
        delay = data.draw(st.sampled_from([None, None, 0, 1_500]), "delay")
        self.report_failures(s, level, delay)

    def report_failures(self, s: Settle, level: int, delay: int | None = None) -> None:
        verdicts = self.verdicts(s)
        recorded: int | str = "" if delay is None else delay
        failures = [Failure(receipt, level, recorded, 0.5, "failure", "{}") for receipt in s.batch]
        keys = self.group(s.part, s.name)
        command = lease.fail(keys, failures, worker=s.worker, tracebacks={})
        assert [answer.verdict for answer in self.run(command)] == verdicts
        for id_ in self.won(s, verdicts):
            group = self.model[s.part].groups[s.name]
            group.fail(id_, self.now, level=level, delay_ms=delay)

    def release(self, s: Settle, _data: st.DataObject) -> None:
        by_hand = self.model[s.part].groups[s.name].kind == "simple"
        verdicts = self.verdicts(s, strict=by_hand)
        self.limit(s, verdicts, bounded=by_hand)
        keys = self.group(s.part, s.name)
        command = lease.release(keys, s.batch, worker=s.worker, max_postpones=MAX_POSTPONES)
        assert self.request_parts(self.run(command)) == verdicts
        won = self.won(s, verdicts)
        self.model[s.part].groups[s.name].give_back(list(won))
        for one in won.values():
            one.postpones += by_hand

    def limit(self, s: Settle, verdicts: list[str], *, bounded: bool) -> None:
        """Who was given back so often that it is refused."""
        leases = self.model[s.part].groups[s.name].leases
        for place, receipt in enumerate(s.batch):
            used = verdicts[place] == "OK" and leases[receipt.id].postpones >= MAX_POSTPONES
            verdicts[place] = "LIMIT" if bounded and used else verdicts[place]

    def postpone(self, s: Settle, data: st.DataObject) -> None:
        delay = data.draw(waits, "delay")
        by_hand = self.model[s.part].groups[s.name].kind == "simple"
        verdicts = self.verdicts(s, strict=by_hand)
        self.limit(s, verdicts, bounded=True)
        command = lease.release(
            self.group(s.part, s.name),
            s.batch,
            worker=s.worker,
            delays_ms=[delay] * len(s.batch),
            max_postpones=MAX_POSTPONES,
        )
        assert self.request_parts(self.run(command)) == verdicts
        for one in self.won(s, verdicts).values():
            one.next(WAITING, self.now + delay)
            one.postpones += 1

    def change(self, s: Settle, data: st.DataObject) -> None:
        duration = data.draw(st.sampled_from([0, 0, 1_000, 61_000]), "duration")
        verdicts = self.verdicts(s, strict=True)
        ((id_, old),) = s.batch
        keys = self.group(s.part, s.name)
        answer = self.run(
            lease.change_visibility(keys, Receipt(id_, old), worker=s.worker, duration_ms=duration)
        )
        assert [answer.verdict] == verdicts
        if verdicts != ["OK"]:
            return
        assert answer.lease_no == old + 1
        new = (s.part, s.name, id_, old + 1)
        assert new not in self.issued
        self.issued.append(new)
        self.held[s.worker].append(new)
        group = self.model[s.part].groups[s.name]
        if duration:
            group.leases[id_].next(INFLIGHT, self.now + duration)
        else:
            group.end_delivery(id_, self.now)
            group.leases[id_].lease_no += 1  # the answered receipt never owns a lease
        assert answer.dead == ((id_,) if group.leases[id_].place == DEAD else ())
