"""The state machine without its rules: what it knows, and what must hold after every step."""

from typing import Any, NamedTuple

from hypothesis.stateful import RuleBasedStateMachine, invariant

from rqretry.checks.auditor import audit
from rqretry.checks.snapshot import in_order, message_group_of
from rqretry.core.receipt import Receipt
from rqretry.core.route import Route
from rqretry.protocol.command import Command
from rqretry.protocol.keys import GroupKeys, NamespaceKeys, PartitionKeys
from rqretry.protocol.publish import scheduled_member
from rqretry.protocol.transaction import read_record
from rqretry.transport.store_sync import SyncStore
from tests.model.model import (
    BLOCKED,
    DEAD,
    DONE,
    INFLIGHT,
    LEVELS_MS,
    READY,
    RETRY,
    WAITING,
    Group,
    Lease,
)
from tests.model.partition import Partition
from tests.model.transactions import OPEN, PARKED, UNDECIDED, Transactions

SOURCE, VIEW = "a", "v"
"""The group whose dead letters are consumed, and who consumes them."""
PRODUCERS = "pg"
CATALOG = NamespaceKeys("model")
Held = tuple[int, str, str, int]
"""Partition, group, id and lease_no: one lease that somebody was given."""


class Settle(NamedTuple):
    """One call about receipts of one partition and group."""

    part: int
    name: str
    worker: str
    batch: list[Receipt]


class Checked(RuleBasedStateMachine):
    """`self.model` and the server must agree, for each partition and group."""

    def __init__(self, client: Any, store: SyncStore) -> None:
        super().__init__()
        self.client, self.store = client, store
        self.keys: list[PartitionKeys] = []
        self.names: list[str] = []
        self.model: list[Partition] = []
        self.transactions = Transactions()
        self.route = Route()
        self.now, self.calls, self.made, self.versions = 1_000_000, 0, 0, 1
        self.last_call: Command[Any] | None = None
        self.held: dict[str, list[Held]] = {"w1": [], "w2": []}
        self.issued: list[Held] = []
        self.claims: list[tuple[str, int]] = []
        self.readers: list[Any] = []
        self.fed: set[tuple[int, float, str]] = set()
        """Partition, time and id of each death that the other group was told of."""
        self.unread: dict[int, list[str]] = {}
        """By partition, the letters that it gave back."""
        self.highest: dict[tuple[int, str, str], int] = {}

    # -- what must hold ------------------------------------------------------------------------

    @invariant()
    def the_server_holds_what_the_model_says(self) -> None:
        for part in range(len(self.keys)):
            held = self.look(part)
            self.compare_partition(part, held)
            for name, group in self.model[part].groups.items():
                self.compare(part, name, group, held)
                self.count(name, group, held[self.keys[part].counters])

    def compare_partition(self, part: int, held: dict[str, Any]) -> None:
        """What is stored, what nobody has yet, and what all have."""
        model, keys = self.model[part], self.keys[part]
        assert set(held[keys.bodies]) == model.stored.keys()
        members = {scheduled_member(i, model.tags[i]): t for i, t in model.scheduled.items()}
        assert held[keys.scheduled] == members
        halves = {id_: half.member(id_) for id_, half in model.halves.items()}
        assert held[keys.half_of] == halves
        assert sorted(held[keys.halves]) == sorted(halves.values())
        letters = {group.byte: group.name for group in self.route.groups}
        pending = {i: {letters[ord(c)] for c in owed} for i, owed in held[keys.pending].items()}
        assert pending == {i: model.owing(i) for i in model.shared if model.owing(i)}
        for id_ in model.stored:
            apart = id_ in model.halves or id_ in model.scheduled
            assert apart != bool(model.owing(id_)), "a message in no place, or in two"
        named = {i: message_group_of(slot) for i, slot in held[keys.message_groups].items()}
        assert named == model.names
        assert held[keys.keyed] == model.keyed
        indexed = {f"{key}\0{i}" for i, names in model.keyed.items() for key in names.split(" ")}
        assert held[keys.message_keys].keys() == indexed
        shown = (
            [(entry.at, entry.first, entry.ids) for entry in model.cast.entries]
            if model.cast
            else []
        )
        assert held[keys.broadcast] == shown

    @invariant()
    def transactions_are_where_the_model_says(self) -> None:
        if not self.keys:
            return
        pipeline = self.client.pipeline(transaction=False)
        pipeline.hgetall(CATALOG.transactions)
        indexes = (
            CATALOG.open_transactions, CATALOG.checks(PRODUCERS), CATALOG.unfinished_transactions,
            CATALOG.parked_transactions, CATALOG.finished_transactions,
        )  # fmt: skip
        for key in indexes:
            pipeline.zrange(key, 0, -1, withscores=True)
        stored, *scored = pipeline.execute()
        found = [read_record(id_.decode(), text) for id_, text in stored.items()]
        model = self.transactions.records
        assert {
            r.id: (r.state, r.checks, r.claim, [n for _, n in r.partitions]) for r in found
        } == {i: (r.state, r.checks, r.claim, r.places) for i, r in model.items()}
        finished = self.transactions.finished
        going = {i: r for i, r in model.items() if i not in finished}
        opened, checks, unfinished, parked, kept = (
            {id_.decode(): at for id_, at in index} for index in scored
        )
        assert opened.keys() == going.keys()
        assert checks == {i: r.due for i, r in going.items() if r.state == OPEN}
        assert unfinished == {i: r.due for i, r in going.items() if r.state not in UNDECIDED}
        assert parked.keys() == {i for i, r in going.items() if r.state == PARKED}
        assert kept == finished

    def look(self, part: int) -> dict[str, Any]:
        """Everything of a partition that says where a message is."""
        keys = self.keys[part]
        groups = [self.group(part, name) for name in self.names]
        hashes = [keys.bodies, keys.pending, keys.counters, keys.message_groups, keys.half_of]
        hashes += [keys.keyed]
        hashes += [key for group in groups for key in (group.attempts, group.heads)]
        lists = [key for group in groups for key in (group.ready, group.retry)]
        scored = [keys.scheduled, keys.halves, keys.message_keys]
        scored += [key for g in groups for key in (g.inflight, g.dead, g.order, *g.levels)]
        pipeline = self.client.pipeline(transaction=False)
        for key in hashes:
            pipeline.hgetall(key)
        for key in lists:
            pipeline.lrange(key, 0, -1)
        for key in scored:
            pipeline.zrange(key, 0, -1, withscores=True)
        pipeline.xrange(keys.broadcast)
        *replies, stream = pipeline.execute()
        found = dict(zip([*hashes, *lists, *scored], replies, strict=True))
        return {
            **{key: {k.decode(): v.decode() for k, v in found[key].items()} for key in hashes},
            **{key: self.request_parts(found[key]) for key in lists},
            **{key: {id_.decode(): due for id_, due in found[key]} for key in scored},
            keys.broadcast: [self.entry(id_, fields) for id_, fields in stream],
        }

    def compare(self, part: int, name: str, group: Group, held: dict[str, Any]) -> None:
        """Every message of a group is in one place, and it is the right one."""
        keys = self.group(part, name)
        lists = {READY: held[keys.ready], RETRY: held[keys.retry]}
        waiting = [held[level] for level in keys.levels]
        everywhere = [*lists[READY], *lists[RETRY], *held[keys.inflight], *held[keys.dead]]
        everywhere += [id_ for level in waiting for id_ in level]
        assert len(everywhere) == len(set(everywhere)), "a message in two places"
        assert set(everywhere) <= self.model[part].stored.keys(), "a message without a body"
        assert lists == group.lists
        assert held[keys.inflight] == group.at(INFLIGHT)
        assert {i: due for level in waiting for i, due in level.items()} == group.at(WAITING)
        assert held[keys.dead] == group.at(DEAD)
        self.compare_lines(held[keys.order], held[keys.heads], group)
        for id_ in everywhere:
            one = group.leases[id_]
            numbers = (one.lease_no, one.attempt, one.expiries, one.postpones)
            assert held[keys.attempts].get(id_, "1:1:0:0") == ":".join(map(str, numbers))
            assert one.lease_no >= self.highest.get((part, name, id_), 0), (
                "a lease number went back"
            )
            self.highest[part, name, id_] = one.lease_no

    @staticmethod
    def compare_lines(members: list[str], heads: dict[str, str], group: Group) -> None:
        """The order of each message group, and that one of its messages is out at most."""
        line: dict[str, list[str]] = {}
        for name, id_ in sorted(map(in_order, sorted(members)), key=lambda pair: pair[0]):
            line.setdefault(name, []).append(id_)
        assert line == group.line
        assert heads == group.heads
        out = [*group.lists[READY], *group.lists[RETRY], *group.at(INFLIGHT), *group.at(WAITING)]
        names = [group.names[id_] for id_ in out if id_ in group.names]
        assert not group.ordered or len(names) == len(set(names)), "two of a message group are out"
        blocked = [id_ for name, ids in line.items() for id_ in ids if heads[name] != id_]
        assert sorted(blocked) == sorted(group.at(BLOCKED))

    def count(self, name: str, group: Group, counters: dict[str, str]) -> None:
        """ready + inflight + waiting + dead = published - committed - purged."""
        figure = {key: int(value) for key, value in counters.items()}
        over = figure.get(f"succeed:{name}", 0) + figure.get(f"purge:{name}", 0)
        here = sum(one.place != DONE for one in group.leases.values())
        assert figure.get(f"publish:{name}", 0) - over == here

    def teardown(self) -> None:
        for keys in self.keys:
            groups = [keys.group(name, len(LEVELS_MS)) for name in self.names]
            if self.names:
                groups.append(keys.group(VIEW, len(LEVELS_MS), SOURCE))
            assert self.store.perform(audit(keys, groups)) == []

    # -- helpers -------------------------------------------------------------------------------

    def run(self, command: Command[Any]) -> Any:
        return self.store.run(command)

    def group(self, part: int, name: str) -> GroupKeys:
        return self.keys[part].group(name, len(LEVELS_MS))

    def named(self, number: int) -> str:
        """One of the groups."""
        return self.names[number % len(self.names)]

    def fresh(self) -> str:
        self.made += 1
        return f"m{self.made:04}"

    def remembered(self, part: int, id_: str) -> bool:
        return self.model[part].known(id_, self.now) is not None

    def forget_receipts(self, part: int, ids: set[str]) -> None:
        """An id used again long after its message was gone names another message."""

        def other(held: Held) -> bool:
            return held[0] != part or held[2] not in ids

        self.issued = [held for held in self.issued if other(held)]
        self.held = {worker: list(filter(other, held)) for worker, held in self.held.items()}
        for name in self.names:
            for id_ in ids:
                self.highest.pop((part, name, id_), None)

    def verdicts(self, s: Settle, *, strict: bool = False) -> list[str]:
        group = self.model[s.part].groups[s.name]
        found = []
        for id_, lease_no in s.batch:
            verdict = group.verdict(id_, lease_no)
            if verdict == "OK" and strict and group.leases[id_].until <= self.now:
                verdict = "STALE"
            found.append(verdict)
        return found

    def won(self, s: Settle, verdicts: list[str]) -> dict[str, Lease]:
        leases = self.model[s.part].groups[s.name].leases
        pairs = zip(s.batch, verdicts, strict=True)
        return {receipt.id: leases[receipt.id] for receipt, verdict in pairs if verdict == "OK"}

    @staticmethod
    def request_parts(values: Any) -> list[str]:
        return [value.decode() for value in values]

    @staticmethod
    def entry(id_: bytes, fields: dict[bytes, bytes]) -> tuple[int, int, tuple[str, ...]]:
        """When it was shown, the number of its first message, and its ids."""
        first, *ids = fields
        assert first == b"n"
        return int(id_.split(b"-")[0]), int(fields[b"n"]), tuple(one.decode() for one in ids)
