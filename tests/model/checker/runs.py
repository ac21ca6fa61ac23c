"""Hand-made runs for the proof of the checker: a clean one, and steps to break it with."""

from typing import Any

from rqretry.protocol.keys import partition_keys
from tests.model.checker.history import OK, Effect, Operation
from tests.model.checker.journal import Journal
from tests.model.checker.keyspace import Keyspace, Listed, SortedSet
from tests.model.checker.records import Records
from tests.model.checker.transitions import Kind, Transition

LADDER_MS = 10_000
PARTITION = partition_keys("test", "t", 0)
GROUP = PARTITION.group("g", 18)


def step(kind: Kind, id_: str = "a", **fields: Any) -> Transition:
    """A transition of a message in group g, or of the message as a whole."""
    whole = kind in {Kind.CREATE, Kind.REMOVE, Kind.OVERWRITE}
    fields = {"group": "" if whole else "g", "block": 1, "max_attempts": 17, **fields}
    return Transition(kind=kind, id=id_, **fields)


def life() -> list[Transition]:
    """Message a: published, leased, failed, promoted, leased again and committed."""
    return [
        step(Kind.CREATE, at_ms=1000, verb="publish"),
        step(Kind.ENTER, at_ms=1000, order="0000000000000001x"),
        step(Kind.LEASE, lease_no=1, attempt=1, at_ms=2000, until_ms=32_000),
        step(Kind.RENEW, lease_no=1, attempt=1, at_ms=2500, until_ms=32_500, deadline_ms=32_000),
        step(
            Kind.FAIL, lease_no=1, attempt=1, at_ms=3000, deadline_ms=32_500, until_ms=13_000,
            ladder_ms=LADDER_MS, lane="delay",
        ),
        step(Kind.PROMOTE, lease_no=2, attempt=2, at_ms=13_000, deadline_ms=13_000),
        step(Kind.LEASE, lease_no=2, attempt=2, at_ms=13_100, until_ms=43_100),
        step(Kind.SUCCEED, lease_no=2, attempt=2, at_ms=14_000, deadline_ms=43_100),
        step(Kind.REMOVE, at_ms=14_000, verb="succeed"),
    ]  # fmt: skip


def publish(id_: str = "a", outcome: str = OK, *, proc: str = "1", **fields: Any) -> Operation:
    """A publish to topic t, with its end."""
    given = {"topic": "t", "id": id_, "tier_confirmed": "memory", **fields}
    return Operation(proc, 1, "publish", outcome, given, began_ns=1, ended_ns=2)


def ran(lease_no: int = 1, outcome: str = "success", id_: str = "a", **fields: Any) -> Effect:
    """An attempt that a handler ran in process 7, and finished."""
    given = {"proc": "7", "began_ns": 1, "ended_ns": 2, "outcome": outcome, **fields}
    return Effect("t", "g", id_, lease_no, lease_no, **given)


def remains(**counters: int) -> Keyspace:
    """What a partition with group g has at the end of it all."""
    counted = {f"{name}:g": str(count) for name, count in counters.items()}
    config = {"byte": "a", "ordered": "1"}
    return Keyspace({GROUP.config: config, PARTITION.counters: counted})


def clean() -> Records:
    """A run with nothing wrong in it."""
    records = Records()
    records.history = [publish()]
    records.effects = [ran(1, "failure"), ran(2)]
    records.final = remains(lease=2, fail=1, promote=1, succeed=1)
    records.journal = Journal(life(), Keyspace(records.final.values), 8, {("t", "a")})
    return records


def hold(records: Records, id_: str, *places: str) -> None:
    """At the end the body of a message is stored, and group g has it in these places."""
    for space in (records.final, records.journal.final if records.journal else records.final):
        space.values[PARTITION.bodies] = {**space.hash(PARTITION.bodies), id_: "body"}
        for place in places:
            key = {"delay": GROUP.levels[0]}.get(place) or str(getattr(GROUP, place))
            if place in {"ready", "retry"}:
                space.values[key] = Listed([*space.listed(key), id_])
            else:
                space.values[key] = SortedSet({**space.scores(key), id_: 5000.0})
            if place == "delay":
                space.values[GROUP.due] = SortedSet({"1": 5000.0})
            if place == "dead":
                space.values[GROUP.deaths] = {id_: "17 failure"}
