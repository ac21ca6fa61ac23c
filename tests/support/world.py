"""One partition on one server and a virtual clock: verbs in, whole states out."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from rqretry.checks.auditor import Defect, audit
from rqretry.core.failure_record import BY_HAND, describe_cause
from rqretry.core.receipt import Receipt
from rqretry.core.route import Route, RouteGroup
from rqretry.protocol import catalog, maintain, operate
from rqretry.protocol import lease as consuming
from rqretry.protocol import publish as producing
from rqretry.protocol.command import Command, Each, Operation, Pause
from rqretry.protocol.keys import GroupKeys, PartitionKeys, partition_keys
from rqretry.protocol.lease import Failed, Failure, Leased
from rqretry.protocol.publish import Front, Prepared, Published
from tests.support.backends import Backend
from tests.support.builders import LEVELS, SECOND, failure, first, group_fields, prepared
from tests.support.lua_hooks import CLOCK_KEY
from tests.support.values import request_parts, values_of

T = TypeVar("T")

START_MS = 1_000_000
"""When every world begins; small, so that a state is easy to read."""
WORKER = "w1"
VISIBILITY_MS = 30 * SECOND

State = dict[str, Any]
Changes = dict[str, Any]


class World:
    """A partition of topic `t` in namespace `test`; the clock moves when the test says so."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.client = backend.client
        self.keys: PartitionKeys = partition_keys("test", "t", 0)
        self.route = Route()
        self.now = START_MS
        self.seq = 0
        self.damaged = False
        backend.client.flushall()
        self.set_time(START_MS)

    # The clock

    def set_time(self, now_ms: int) -> None:
        """The server's wall clock says `now_ms` from here on."""
        self.now = now_ms
        place = f"{CLOCK_KEY}:{{t:0}}" if self.backend.clock_in_slot else CLOCK_KEY
        self.client.set(place, now_ms)

    def advance(self, ms: int) -> None:
        """The clock runs on."""
        self.set_time(self.now + ms)

    # The verbs, with defaults

    def run(self, command: Command[T]) -> T:
        """Run one command."""
        result: T = self.backend.run(command)
        return result

    def perform(self, operation: Operation[T]) -> T:
        """Perform an operation to its end; it never waits, since the clock is virtual."""
        result: Any = None
        while True:
            try:
                step = operation.send(result)
            except StopIteration as end:
                found: T = end.value
                return found
            if isinstance(step, Command):
                result = self.run(step)
            elif isinstance(step, list):
                result = [self.run(command) for command in step]
            elif isinstance(step, Each):
                result = [self.run(command) for command in step.commands]
            else:
                assert isinstance(step, Pause), step
                result = None

    def findings(self) -> list[Defect]:
        """What the auditor says about the partition."""
        groups = [self.group(group.name) for group in self.route.groups]
        return self.perform(audit(self.keys, groups))

    def damage(self) -> Any:
        """The client, for damaging the store by hand: the world is not sound afterwards."""
        self.damaged = True
        return self.client

    def subscribe(
        self,
        name: str = "g",
        *,
        kind: str = "push",
        tags: str = "*",
        ordered: bool = False,
        install: bool = True,
        **settings: Any,
    ) -> GroupKeys:
        """A new group of the topic, configured and routed."""
        byte = len(self.route.groups) + 97
        groups = (*self.route.groups, RouteGroup(name, byte, kind, tags, ordered))
        self.route = replace(self.route, version=self.route.version + 1, groups=groups)
        keys = self.group(name)
        if ordered:
            settings = {"ordered": 1, "delays": str(SECOND), **settings}
        self.configure(name, 1, **group_fields(byte, kind=kind, **settings))
        if install:
            self.install()
        return keys

    def install(self) -> None:
        """Tell the partition the route."""
        self._copy(lambda here: catalog.subscribe(self.keys, self.route, here))

    def _copy(self, copy: Callable[[str], Command[int | str]]) -> None:
        """As those do who have read the catalog just now, whatever incarnation the data are of."""

        def again() -> Operation[list[catalog.Partition]]:
            yield from ()
            return [only]

        only = ("t", 0)
        self.perform(catalog.copied([only], lambda _, here: copy(here), again))

    def group(self, name: str = "g") -> GroupKeys:
        """The keys of a group."""
        return self.keys.group(name, len(LEVELS))

    def configure(self, name: str, version: int, **fields: Any) -> None:
        """Change a group's configuration."""
        self._copy(lambda here: catalog.configure(self.group(name), version, fields, here))

    def publish(
        self,
        *messages: str | Prepared,
        producer: str = "p",
        seq: int | None = None,
        checksum: str = "sum",
        route: Route | None = None,
        front: Front | None = None,
    ) -> Published:
        """Publish messages, or ids with a small body, in the producer's next call."""
        if seq is None:
            self.seq += 1
            seq = self.seq
        return self.run(
            producing.publish(
                self.keys,
                route or self.route,
                [prepared(m) if isinstance(m, str) else m for m in messages],
                producer=producer,
                seq=seq,
                checksum=checksum,
                lane_ttl_ms=3600 * SECOND,
                front=front,
            )
        )

    def lease(
        self,
        want: int = 10,
        *,
        group: str = "g",
        visibility_ms: int = VISIBILITY_MS,
        prefer: str = "ready",
        tokens: bool = False,
        expected_ms: int | None = None,
    ) -> Leased:
        """Lease for the default worker."""
        return self.run(
            consuming.lease(
                self.group(group),
                worker=WORKER,
                want=want,
                visibility_ms=visibility_ms,
                prefer=prefer,
                tokens=tokens,
                expected_ms=expected_ms,
            )
        )

    def renew(
        self,
        *receipts: Receipt,
        visibility_ms: int = VISIBILITY_MS,
        expected_ms: int | None = None,
    ) -> list[str]:
        """Renew; verdicts as text."""
        command = consuming.renew(
            self.group(), receipts, visibility_ms=visibility_ms, expected_ms=expected_ms
        )
        return request_parts(self.run(command))

    def succeed(self, *receipts: Receipt, group: str = "g", strict: bool = False) -> list[str]:
        """Commit; verdicts as text."""
        command = consuming.succeed(self.group(group), receipts, worker=WORKER, strict=strict)
        return request_parts(self.run(command))

    def fail(
        self, *failures: Failure, group: str = "g", tracebacks: dict[str, str] | None = None
    ) -> list[Failed]:
        """Report failed attempts."""
        keys = self.group(group)
        return self.run(consuming.fail(keys, failures, worker=WORKER, tracebacks=tracebacks or {}))

    def release(
        self,
        *receipts: Receipt,
        delays_ms: Sequence[int | str] | None = None,
        max_postpones: int = 0,
    ) -> list[str]:
        """Give back, or postpone; verdicts as text."""
        command = consuming.release(
            self.group(),
            receipts,
            worker=WORKER,
            delays_ms=delays_ms,
            max_postpones=max_postpones,
        )
        return request_parts(self.run(command))

    def change(self, receipt: Receipt, duration_ms: int) -> int | str:
        """Change a deadline; the new lease number, or the verdict as text."""
        answer = self.changed(receipt, duration_ms)
        return answer.lease_no if answer.verdict == "OK" else answer.verdict

    def changed(self, receipt: Receipt, duration_ms: int) -> consuming.Changed:
        """The same, with the whole answer."""
        keys = self.group()
        return self.run(
            consuming.change_visibility(keys, receipt, worker=WORKER, duration_ms=duration_ms)
        )

    def expire(self, *, group: str = "g", **changes: Any) -> maintain.Expired:
        """Expire what is overdue."""
        options: dict[str, Any] = {"worker": WORKER, "hold_ms": 10 * SECOND, "random": 0.5}
        options |= changes
        return self.run(maintain.expire(self.group(group), **options))

    def promote(self, *, group: str = "g", limit: int = 500, **options: Any) -> maintain.Promoted:
        """Promote what is due."""
        keys = self.group(group)
        return self.run(maintain.promote(keys, worker=WORKER, limit=limit, **options))

    def deliver(self, *, route: Route | None = None, limit: int = 500, **options: Any) -> Any:
        """Deliver what is scheduled and due; where groups filter, after a look at it."""
        route = route or self.route
        if not route.filtered:
            command = producing.deliver(self.keys, route, worker=WORKER, limit=limit, **options)
            return self.run(command)
        members, next_ms = self.due_members(limit)
        return self.deliver_these(*members) if members else ("OK", 0, next_ms, None)

    def due_members(self, limit: int = 500) -> tuple[list[str], int | None]:
        """Look at what is scheduled and due."""
        return self.run(producing.due_members(self.keys, limit=limit))

    def deliver_these(self, *members: str) -> Any:
        """Deliver what was looked at."""
        return self.run(
            producing.deliver(self.keys, self.route, worker=WORKER, limit=1, members=members)
        )

    def redrive(
        self, *ids: str, group: str = "g", delays_ms: Sequence[int | str] | None = None
    ) -> list[str]:
        """Send dead letters back; verdicts as text."""
        keys = self.group(group)
        return request_parts(self.run(operate.redrive(keys, ids, actor="ops", delays_ms=delays_ms)))

    def purge(self, *ids: str, group: str = "g", place: str = "dead") -> list[str]:
        """Delete dead letters, or what is in another sorted set; verdicts as text."""
        key = f"{self.keys.base}group:{group}:{place}"
        return request_parts(self.run(operate.purge(self.group(group), ids, actor="ops", key=key)))

    def drop(
        self,
        *answers: tuple[str, bool],
        group: str = "g",
        lane: str = "ready",
        limit: int = 500,
    ) -> operate.PurgeCount:
        """Delete what is ready, at the head of a lane."""
        keys = self.group(group)
        place = {"ready": keys.ready, "retry": keys.retry}[lane]
        return self.run(operate.purge_list(keys, place, actor="ops", answers=answers, limit=limit))

    def end_by_hand(
        self, *ids: str, group: str = "g", place: str = "ready", staying: str = ""
    ) -> operate.PurgeCount:
        """Dead-letter these in a list, a delay level or the order (`line`), but for `staying`."""
        keys = self.group(group)
        key = f"{self.keys.base}group:{group}:{place}"
        structure = {"ready": "list", "retry": "list", "line": "order"}.get(place, "zset")
        answers = [(id_, id_ not in staying.split()) for id_ in ids]
        record = describe_cause(BY_HAND, "no card", "ops")
        return self.run(
            operate.dead_letter(keys, key, structure, answers, actor="ops", record=record)
        )

    def catch_up(
        self, place: str = "ready", *, of: str = "g", group: str = "h", offset: int = 0
    ) -> operate.CatchUpCount:
        """Give a group one page of what another has in a place; of a list, its tail."""
        owner = next(other.byte for other in self.route.groups if other.name == of)
        in_list = place in ("ready", "retry")
        key = f"{self.keys.base}group:{of}:{place}"
        return self.run(
            operate.catch_up(
                self.group(group), key, actor="ops", in_list=in_list, owner=owner, offset=offset
            )
        )

    def replay(
        self, group: str = "g", *, all_groups: bool = False, limit: int = 75, **times: int
    ) -> operate.ReplayCount:
        """One page of what the group has consumed, or of what any has, delivered again."""
        keys = self.group(group)
        key = self.keys.kept if all_groups else keys.consumed
        span = {"since_ms": 0, "upto_ms": self.now + 1, **times}
        command = operate.replay(keys, key, actor="ops", record="{}", limit=limit, **span)
        return self.run(command)

    def missed(self, group: str = "h") -> set[str]:
        """The stored messages that the group does not owe."""
        cursor, ids = self.run(operate.backfill_check(self.group(group), "0"))
        found = set(ids)
        while cursor != "0":
            cursor, ids = self.run(operate.backfill_check(self.group(group), cursor))
            found.update(ids)
        return found

    def leave(self, group: str = "g") -> int:
        """Forget a group that holds nothing; answers what it holds."""
        return self.run(operate.leave(self.group(group)))

    def recall(self, id_: str, tag: str = "") -> str:
        """Take back a scheduled message."""
        return self.run(operate.recall(self.keys, id_, worker=WORKER, tag=tag))

    def sweep(self, limit: int = 500, *, groups: Sequence[str] = ()) -> maintain.Swept:
        """Forget what was kept for a time that is over."""
        keys = [self.group(name) for name in groups]
        return self.run(maintain.sweep(self.keys, keys, limit=limit))

    # Ways into a state

    def leased(self, *ids: str, group: str = "g", publish: bool = True) -> list[Receipt]:
        """Publish these and lease them for the first time."""
        if publish:
            self.publish(*ids)
        assert self.lease(len(ids), group=group).ids == list(ids)
        return first(*ids)

    def dead_letter(self, *ids: str, group: str = "g") -> None:
        """Publish these, lease them and let them die at the first attempt."""
        self.leased(*ids, group=group)
        self.fail(*(failure(id_, level=-1) for id_ in ids), group=group)

    # What is there

    def state(self) -> State:
        """Every key of the partition: short name to value; marks of time and bytes left out."""
        base = self.keys.base
        scanned = self.client.scan_iter(match="rqretry:test:*", count=1000)
        names = sorted(key.decode() for key in scanned)
        state = {}
        for name, value in zip(names, values_of(self.client, names), strict=True):
            assert name.startswith(base), name
            state[name.removeprefix(base).removeprefix("group:")] = value
            if name.endswith(":config"):
                value.pop("verified", None)
        meta = state.pop("meta", {})
        if "hold" in meta:
            state["hold"] = meta["hold"]
        if "route" in meta:
            version, table, limit = (meta.get(field) for field in ("route", "table", "most"))
            state["route"] = {"version": version, "table": table, "limit": limit}
        return state

    @contextmanager
    def changes(self) -> Iterator[Changes]:
        """What the calls inside change, everywhere in the partition.

        Of hashes and sorted sets the changed entries (None: removed), of lists and strings the new
        value, of counters the difference, of the history the new entries. Wake keys are popped
        first, as a blocked consumer does, so that one that is set shows.
        """
        for key in list(self.client.scan_iter(match="*:wake")):
            self.client.delete(key)
        before = self.state()
        changes: Changes = {}
        yield changes
        after = self.state()
        for key in sorted(before.keys() | after.keys()):
            if before.get(key) != after.get(key):
                changes[key] = _difference(key, before.get(key), after.get(key))

    def history(self) -> list[str]:
        """The history, one line per entry: verb, group, worker, ids, notes."""
        entries: list[str] = self.state().get("events", [])
        return entries


def _difference(key: str, before: Any, after: Any) -> Any:
    if isinstance(before or after, dict):
        old, new = before or {}, after or {}
        changed = {k: new.get(k) for k in old.keys() | new.keys() if old.get(k) != new.get(k)}
        if key == "counters":
            return {name: int(new[name]) - int(old.get(name, 0)) for name in changed}
        return changed
    if key == "events" and before and after[: len(before)] == before:
        return after[len(before) :]
    return after
