"""Random verbs and clock jumps against real scripts and a plain model (style guide P14).

After every step each message is, for each group, in exactly one place, and it is the place where
the model says it is; nothing is lost; receipts that are over change nothing.

RQRETRY_MODEL=soak runs for long: `RQRETRY_MODEL=soak pytest tests/model`.
"""

import os
from functools import partial
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from rqretry.catalog_starting import catch_up
from rqretry.commands import administering, consuming, moving, producing, upkeep
from rqretry.commands.consuming import Failure, Receipt
from rqretry.commands.producing import Prepared
from rqretry.embedded import EmbeddedRedis
from rqretry.keys import GroupKeys, partition_keys
from rqretry.noted import Noted
from rqretry.routes import Route, RouteGroup
from rqretry.store_sync import SyncStore
from rqretry.url import RedisUrl
from tests.model.checked import NAMES, Checked, Settle
from tests.model.model import (
    DEAD,
    DELAYS_MS,
    DONE,
    INFLIGHT,
    LEVELS_MS,
    MAX_ATTEMPTS,
    MAX_POSTPONES,
    ORDERED_MS,
    READY,
    RETRY,
    WAITING,
    Group,
    Lease,
    Partition,
)
from tests.support.lua_hooks import CLOCK_KEY, virtual_time

COMMON = {
    "deadline": None,
    "print_blob": True,
    "suppress_health_check": list(HealthCheck),
    "database": None,
}
PROFILES = {
    "dev": settings(max_examples=80, stateful_step_count=40, **COMMON),  # type: ignore[arg-type]
    "soak": settings(max_examples=3000, stateful_step_count=100, **COMMON),  # type: ignore[arg-type]
}
PROFILE = PROFILES[os.environ.get("RQRETRY_MODEL", "dev")]

VISIBILITY_MS = 10_000


parts = st.integers(0, 2)
groups = st.sampled_from(NAMES)
workers = st.sampled_from(("w1", "w2"))
picks = st.lists(st.integers(0, 10_000), min_size=1, max_size=4)
lanes = st.sampled_from([READY, RETRY])
waits = st.sampled_from([0, 1, 1_000, 3_000, 61_000])


class Conservation(Checked):
    """The rules: every verb, time, crashes, operators, and receipts that are long over."""

    @initialize(
        count=st.integers(1, 3),
        kind=st.sampled_from(["push", "simple"]),
        tags=st.sampled_from(["*", "x", "x || y"]),
        ordered=st.sampled_from(["", "a", "b", "ab"]),
    )
    def begin(self, count: int, kind: str, tags: str, ordered: str) -> None:
        self.client.flushall()
        self.advance(0)
        self.keys = [partition_keys("model", "t", number) for number in range(count)]
        kinds, filters = (
            {"a": "push", "b": kind},
            {"a": "*" if tags == "*" else "z || x", "b": tags},
        )
        routed = (
            RouteGroup(n, 97 + i, kinds[n], filters[n], n in ordered) for i, n in enumerate(NAMES)
        )
        self.route = Route(1, count, tuple(routed))
        takes = {n: None if t == "*" else frozenset(t.split(" || ")) for n, t in filters.items()}
        for number, keys in enumerate(self.keys):
            for group in self.route.groups:
                fields: dict[str, Any] = {
                    "kind": group.kind,
                    "max_retries": MAX_ATTEMPTS - 1,
                    "delays": " ".join(map(str, DELAYS_MS)),
                    "levels": " ".join(map(str, LEVELS_MS)),
                    "jitter": "0",
                    "byte": bytes((group.byte,)),
                }
                if group.ordered:
                    fields |= {"ordered": 1, "delays": str(ORDERED_MS)}
                self.run(administering.configure(self.group(number, group.name), 1, fields))
            self.run(administering.subscribe(keys, self.route))
        self.model = [
            Partition({n: Group(kinds[n], takes[n], n in ordered) for n in NAMES})
            for _ in self.keys
        ]
        for part in range(count):
            self.publish(part, 4, 0, given=False, body=True, tag="x")
            self.publish(part, 4, 0, given=False, body=True, tag="x", name="g")
            for name in NAMES:  # so that every place has somebody in it from the beginning
                self.lease(part, name, "w1", 3, READY)
                receipts = [Receipt(id_, no) for _, _, id_, no in self.held["w1"][-3:]]
                self.report_failures(Settle(part, name, "w1", receipts[:1]), -1)
                self.report_failures(Settle(part, name, "w1", receipts[1:2]), 0)

    # -- publishing ----------------------------------------------------------------------------

    @rule(
        part=parts,
        count=st.integers(1, 4),
        delay=waits,
        given=st.booleans(),
        body=st.booleans(),
        repeat=st.booleans(),
        tag=st.sampled_from(["", "x", "y", "z"]),
        name=st.sampled_from(["", "g", "gg", "h"]),
    )
    def produce(
        self,
        part: int,
        count: int,
        delay: int,
        given: bool,
        body: bool,
        repeat: bool,
        tag: str,
        name: str,
    ) -> None:
        name = "" if delay else name
        self.publish(part, count, delay, given=given, body=body, tag=tag, name=name)
        if repeat:
            self.publish_again()

    def publish(
        self,
        part: int,
        count: int,
        delay: int,
        *,
        given: bool,
        body: bool,
        tag: str,
        name: str = "",
    ) -> None:
        part %= len(self.keys)
        content = f"body {body}"
        ids = (
            [f"given-{n}" for n in range(count)] if given else [self.fresh() for _ in range(count)]
        )
        digest = content if given else ""
        note = Noted(tag, (), name or None)
        messages = [Prepared(i, content.encode(), digest, delay or "", note) for i in ids]
        self.calls += 1
        self.last_call = producing.publish(
            self.keys[part],
            self.route,
            messages,
            producer=f"p{self.calls}",
            seq=1,
            checksum="sum",
            lane_ttl_ms=10**9,
        )
        answer = self.run(self.last_call)
        model = self.model[part]
        reborn = {i for i in ids if given and not self.remembered(part, i)}
        wanted = [
            model.publish(i, content, self.now, given=given, delay_ms=delay, tag=tag, name=name)
            for i in ids
        ]
        assert answer.status == "OK"
        assert (answer.verdicts or "A" * count) == "".join(wanted)
        self.forget_receipts(part, reborn)

    def publish_again(self) -> None:
        assert self.last_call is not None
        assert self.run(self.last_call).status == "DUPLICATE"

    def deliver(self, part: int, _name: str = "") -> None:
        keys, route, members = self.keys[part], self.route, []
        if route.filtered:
            members, _ = self.run(producing.due_members(keys, limit=500))
        if members or not route.filtered:
            self.run(producing.deliver(keys, route, worker="w1", limit=500, members=members))
        self.model[part].deliver(self.now)

    # -- leasing -------------------------------------------------------------------------------

    @precondition(
        lambda self: any(any(g.lists.values()) for m in self.model for g in m.groups.values())
    )
    @rule(
        part=parts,
        name=groups,
        worker=workers,
        want=st.integers(1, 5),
        prefer=lanes,
    )
    def lease(self, part: int, name: str, worker: str, want: int, prefer: str) -> None:
        part %= len(self.keys)
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
            for name in NAMES:
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

    @rule(part=parts, name=groups, verb=st.sampled_from(["expire", "promote", "deliver"]))
    def keep_up(self, part: int, name: str, verb: str) -> None:
        getattr(self, verb)(part % len(self.keys), name)

    @rule(ms=st.sampled_from([1, 999, 2_000, 10_000, 61_000, 3_700_000]), lazy=st.booleans())
    def let_time_pass(self, ms: int, lazy: bool) -> None:
        """With processes alive, whatever is due is moved; with none, nothing is."""
        self.advance(ms)
        if lazy:
            return
        for part in range(len(self.keys)):
            self.deliver(part)
            for name in NAMES:
                self.expire(part, name)
                self.promote(part, name)

    def expire(self, part: int, name: str) -> None:
        keys = self.group(part, name)
        answer = self.run(upkeep.expire(keys, worker="w1", hold_ms=1, random=0.5))
        assert not answer.held
        self.model[part].groups[name].expire(self.now)

    def promote(self, part: int, name: str) -> None:
        self.run(upkeep.promote(self.group(part, name), worker="w1"))
        group = self.model[part].groups[name]
        due, before = group.promote(self.now), group.lists[RETRY]
        after = self.words(self.client.lrange(self.group(part, name).retry, 0, -1))
        assert after[: len(before)] == before
        assert sorted(after[len(before) :]) == sorted(due)
        group.lists[RETRY] = after

    # -- settling, with good receipts and bad ones -----------------------------------------------

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
        command = consuming.renew(self.group(s.part, s.name), s.batch, visibility_ms=visibility_ms)
        assert self.words(self.run(command)) == verdicts
        for one in self.won(s, verdicts).values():
            one.until = max(one.until, self.now + visibility_ms)

    def succeed(self, s: Settle, data: st.DataObject) -> None:
        strict = data.draw(st.booleans(), "strict")
        verdicts = self.verdicts(s, strict=strict)
        keys = self.group(s.part, s.name)
        command = consuming.succeed(keys, s.batch, worker=s.worker, strict=strict)
        assert self.words(self.run(command)) == verdicts
        for id_ in self.won(s, verdicts):
            self.model[s.part].finish(s.name, id_, self.now)

    def fail(self, s: Settle, data: st.DataObject) -> None:
        level = data.draw(st.sampled_from([0, 0, 0, 1, 2, 99, -1]), "level")
        delay = data.draw(st.sampled_from([None, None, 0, 1_500]), "delay")
        self.report_failures(s, level, delay)

    def report_failures(self, s: Settle, level: int, delay: int | None = None) -> None:
        verdicts = self.verdicts(s)
        said: int | str = "" if delay is None else delay
        failures = [Failure(receipt, level, said, 0.5, "failure", "{}") for receipt in s.batch]
        keys = self.group(s.part, s.name)
        command = consuming.fail(keys, failures, worker=s.worker, tracebacks={})
        assert [answer.verdict for answer in self.run(command)] == verdicts
        for id_ in self.won(s, verdicts):
            group = self.model[s.part].groups[s.name]
            group.fail(id_, self.now, level=level, delay_ms=delay)

    def release(self, s: Settle, _data: st.DataObject) -> None:
        verdicts = self.verdicts(s)
        command = consuming.release(self.group(s.part, s.name), s.batch, worker=s.worker)
        assert self.words(self.run(command)) == verdicts
        self.model[s.part].groups[s.name].give_back(list(self.won(s, verdicts)))

    def postpone(self, s: Settle, data: st.DataObject) -> None:
        delay = data.draw(waits, "delay")
        verdicts = self.verdicts(s)
        command = consuming.release(
            self.group(s.part, s.name),
            s.batch,
            worker=s.worker,
            delays_ms=[delay] * len(s.batch),
            max_postpones=MAX_POSTPONES,
        )
        leases = self.model[s.part].groups[s.name].leases
        for place, receipt in enumerate(s.batch):
            if verdicts[place] == "OK" and leases[receipt.id].postpones >= MAX_POSTPONES:
                verdicts[place] = "LIMIT"
        assert self.words(self.run(command)) == verdicts
        for one in self.won(s, verdicts).values():
            one.next(WAITING, self.now + delay)
            one.postpones += 1

    def change(self, s: Settle, data: st.DataObject) -> None:
        duration = data.draw(st.sampled_from([0, 0, 1_000, 61_000]), "duration")
        verdicts = self.verdicts(s, strict=True)
        ((id_, old),) = s.batch
        keys = self.group(s.part, s.name)
        answer = self.run(
            consuming.change(keys, Receipt(id_, old), worker=s.worker, duration_ms=duration)
        )
        if verdicts != ["OK"]:
            assert answer == verdicts[0].encode()
            return
        assert answer == old + 1
        new = (s.part, s.name, id_, old + 1)
        assert new not in self.issued
        self.issued.append(new)
        self.held[s.worker].append(new)
        group = self.model[s.part].groups[s.name]
        if duration:
            group.leases[id_].next(INFLIGHT, self.now + duration)
        else:
            group.give_back([id_])
            group.leases[id_].lease_no += 1  # the answered receipt never owns a lease

    # -- a group that starts again ---------------------------------------------------------------

    @precondition(lambda self: not self.route.filtered)  # such a group is refused
    @rule(part=parts, name=groups)
    def start_again(self, part: int, name: str) -> None:
        """A group gets all that is stored and it does not have; its old receipts stay stale."""
        part %= len(self.keys)
        model, keys = self.model[part], self.group(part, name)
        group = model.groups[name]
        self.advance(1_000)  # the lease number is the time, above every number given out
        self.configure(keys, catching_up=1)
        sources = [(self.group(part, other.name), other.byte) for other in self.route.groups]
        count = self.store.perform(catch_up(keys, sources, "ops"))
        after = self.words(self.client.lrange(keys.ready, 0, -1))
        given = after[: len(after) - len(group.lists[READY])]
        wanted = {
            id_
            for id_ in model.stored - model.scheduled.keys()
            if id_ not in group.leases or group.leases[id_].place == DONE
        }
        assert (count, sorted(given)) == (len(wanted), sorted(wanted))
        assert after[count:] == group.lists[READY]
        for id_ in given:
            group.leases[id_] = Lease(lease_no=self.now)
        group.lists[READY] = after
        self.configure(keys, catching_up=0)

    def configure(self, keys: GroupKeys, catching_up: int) -> None:
        self.versions += 1
        fields = {"paused": catching_up, "catching_up": catching_up}
        assert self.run(administering.configure(keys, self.versions, fields)) == 1

    # -- dead letters --------------------------------------------------------------------------

    @precondition(lambda self: any(g.at(DEAD) for m in self.model for g in m.groups.values()))
    @rule(verb=st.sampled_from(["redrive", "purge"]), pick=picks)
    def operate(self, verb: str, pick: list[int]) -> None:
        """By an operator: dead letters, and ids that are none."""
        for part, model in enumerate(self.model):
            for name, group in model.groups.items():
                dead, others = sorted(group.at(DEAD)), sorted(group.leases)
                pool = [*dead, *dead, *others, "unknown"]
                ids = list(dict.fromkeys(pool[n % len(pool)] for n in pick))
                command = getattr(moving, verb)(self.group(part, name), ids, actor="ops")
                verdicts = ["OK" if id_ in dead else "GONE" for id_ in ids]
                assert self.words(self.run(command)) == verdicts
                won = [id_ for id_ in ids if id_ in dead]
                if verb == "redrive":
                    group.redrive(won)
                else:
                    for id_ in won:
                        model.finish(name, id_, self.now)


@pytest.mark.timeout(0 if PROFILE is PROFILES["soak"] else 120)
def test_every_message_is_always_in_exactly_one_place() -> None:
    with (
        EmbeddedRedis() as server,
        redis.Redis(unix_socket_path=str(server.socket_path)) as client,
        SyncStore(RedisUrl.parse(server.url), virtual_time()) as store,
    ):
        machine: Any = partial(Conservation, client, store)
        run_state_machine_as_test(machine, settings=PROFILE)
