"""Rules: leasing, crashing, pausing, and what time does."""

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from rqretry.core.receipt import Receipt
from rqretry.protocol import catalog, maintain
from rqretry.protocol import lease as consuming
from rqretry.protocol.keys import GroupKeys
from tests.model.checked import Settle
from tests.model.model import INFLIGHT, MAX_ATTEMPTS, READY, RETRY
from tests.model.publishing import Publishing, parts
from tests.support.lua_hooks import CLOCK_KEY

VISIBILITY_MS = 10_000
groups = st.integers(0, 5)
workers = st.sampled_from(("w1", "w2"))
lanes = st.sampled_from([READY, RETRY])


class Leasing(Publishing):
    """Messages go out, and time passes."""

    @precondition(
        lambda self: any(any(g.lists.values()) for m in self.model for g in m.groups.values())
    )
    @rule(part=parts, number=groups, worker=workers, want=st.integers(1, 5), prefer=lanes)
    def take(self, part: int, number: int, worker: str, want: int, prefer: str) -> None:
        self.lease(part % len(self.keys), self.named(number), worker, want, prefer)

    def lease(self, part: int, name: str, worker: str, want: int, prefer: str) -> None:
        leased = self.run(
            consuming.lease(
                self.group(part, name),
                worker=worker,
                want=want,
                visibility_ms=VISIBILITY_MS,
                prefer=prefer,
            )
        )
        group = self.model[part].groups[name]
        full = group.most is not None and len(group.at(INFLIGHT)) >= group.most
        assert (leased.status == "PAUSED") == group.paused
        assert leased.status == "LIMITED" or group.paused or not full
        assert leased.ids == group.lease(want, self.now + VISIBILITY_MS, prefer)
        for id_, (lease_no, attempt) in zip(leased.ids, leased.numbers, strict=True):
            one = group.leases[id_]
            assert (lease_no, attempt) == (one.lease_no, one.attempt)
            assert attempt <= MAX_ATTEMPTS
            held = (part, name, id_, lease_no)
            assert held not in self.issued, "two leases with one number"
            self.issued.append(held)
            self.held[worker].append(held)

    @rule(
        worker=workers,
        prefer=lanes,
        verb=st.sampled_from(["succeed", "fail", "postpone"]),
        data=st.data(),
    )
    def work(self, worker: str, prefer: str, verb: str, data: st.DataObject) -> None:
        """A good worker: lease from everywhere, and settle all of it at once."""
        for part in range(len(self.keys)):
            for name in self.names:
                before = len(self.held[worker])
                self.lease(part, name, worker, 3, prefer)
                batch = [Receipt(id_, no) for _, _, id_, no in self.held[worker][before:]]
                if batch:
                    getattr(self, verb)(Settle(part, name, worker, batch), data)

    @rule(worker=workers)
    def crash(self, worker: str) -> None:
        self.held[worker].clear()

    def advance(self, ms: int) -> None:
        self.now += ms
        self.client.set(CLOCK_KEY, self.now)

    @precondition(lambda self: self.names)
    @rule(part=parts, number=groups, verb=st.sampled_from(["expire", "promote"]))
    def keep_up(self, part: int, number: int, verb: str) -> None:
        getattr(self, verb)(part % len(self.keys), self.named(number))

    @rule(part=parts)
    def deliver_what_is_due(self, part: int) -> None:
        self.deliver(part % len(self.keys))

    @precondition(lambda self: self.names)
    @rule(part=parts, number=groups)
    def pause_or_resume(self, part: int, number: int) -> None:
        """An operator stops the deliveries of a group; all else goes on."""
        part %= len(self.keys)
        name = self.named(number)
        group = self.model[part].groups[name]
        group.paused = not group.paused
        self.configure(self.group(part, name), paused=int(group.paused))

    def configure(self, keys: GroupKeys, **fields: int) -> None:
        self.versions += 1
        assert self.run(catalog.configure(keys, self.versions, fields)) == 0

    @rule(ms=st.sampled_from([1, 999, 2_000, 10_000, 61_000, 3_700_000]), lazy=st.booleans())
    def let_time_pass(self, ms: int, lazy: bool) -> None:
        """With processes alive, whatever is due is moved; with none, nothing is."""
        self.advance(ms)
        if lazy:
            return
        for part in range(len(self.keys)):
            self.deliver(part)
            for name in self.names:
                self.expire(part, name)
                self.promote(part, name)

    def expire(self, part: int, name: str) -> None:
        keys = self.group(part, name)
        answer = self.run(maintain.expire(keys, worker="w1", hold_ms=1, random=0.5))
        assert not answer.held
        self.model[part].groups[name].expire(self.now)

    def promote(self, part: int, name: str) -> None:
        self.run(maintain.promote(self.group(part, name), worker="w1"))
        group = self.model[part].groups[name]
        due, before = group.promote(self.now), group.lists[RETRY]
        after = self.request_parts(self.client.lrange(self.group(part, name).retry, 0, -1))
        assert after[: len(before)] == before
        assert sorted(after[len(before) :]) == sorted(due)
        group.lists[RETRY] = after
