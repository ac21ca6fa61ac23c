"""The checker's own proof: a clean run passes, and every way to break a rule is found."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.model.checker.check import check
from tests.model.checker.history import FAIL, INFO, OK, Operation
from tests.model.checker.records import Expectations, Records
from tests.model.checker.report import Verdict
from tests.model.checker.runs import GROUP, PARTITION, clean, hold, life, publish, ran, step
from tests.model.checker.transitions import Entity, Kind, Transition

Break = Callable[[Records], None]


def story(records: Records) -> list[Transition]:
    """The journal's steps, to be changed."""
    assert records.journal is not None
    return records.journal.transitions


def drop(kind: Kind, which: int = 0) -> Break:
    """The journal has not got a step."""

    def broken(records: Records) -> None:
        steps = [s for s in story(records) if s.kind is kind]
        story(records).remove(steps[which])

    return broken


def change(kind: Kind, which: int = 0, /, **fields: Any) -> Break:
    """A step of the journal is another one."""

    def broken(records: Records) -> None:
        steps = story(records)
        at = [i for i, s in enumerate(steps) if s.kind is kind][which]
        steps[at] = replace(steps[at], **fields)

    return broken


def insert(kind: Kind, before: Kind, which: int = 0, **fields: Any) -> Break:
    """The journal has one step more."""

    def broken(records: Records) -> None:
        steps = story(records)
        at = [i for i, s in enumerate(steps) if s.kind is before][which]
        steps.insert(at, step(kind, **{"at_ms": steps[at].at_ms, **fields}))

    return broken


def also(*breaks: Break) -> Break:
    """Several at once."""

    def broken(records: Records) -> None:
        for one in breaks:
            one(records)

    return broken


def with_history(*operations: Operation) -> Break:
    return lambda records: records.history.extend(operations)


def ack(outcome: str, lease_no: int) -> Operation:
    fields = {"topic": "t", "group": "g", "id": "a", "lease_no": lease_no}
    return Operation("1", 2, "ack", outcome, fields, began_ns=3, ended_ns=4)


def put(key: str, value: Any) -> Break:
    """A key has another value at the end, in the journal too."""

    def broken(records: Records) -> None:
        assert records.journal is not None
        records.final.values[key] = records.journal.final.values[key] = value

    return broken


def held(id_: str, *places: str) -> Break:
    return lambda records: hold(records, id_, *places)


def second_message(records: Records) -> None:
    """Message b of the same message group, behind a, goes and commits the same way."""
    steps = [
        replace(s, id="b", order="0000000000000002x" if s.kind is Kind.ENTER else "")
        for s in life()
    ]
    records.history.append(publish("b"))
    records.effects += [ran(1, "failure", "b"), ran(2, id_="b")]
    begun = [s for s in steps if s.kind in {Kind.CREATE, Kind.ENTER}]
    went = [replace(s, at_ms=s.at_ms + 20_000) for s in steps if s not in begun]
    went = [replace(s, until_ms=s.until_ms and s.until_ms + 20_000) for s in went]
    went = [replace(s, deadline_ms=s.deadline_ms and s.deadline_ms + 20_000) for s in went]
    story(records)[2:2] = begun
    story(records).extend(went)
    counters = {"lease:g": "4", "fail:g": "2", "promote:g": "2", "succeed:g": "2"}
    put(PARTITION.counters, counters)(records)


def interleaved(records: Records) -> None:
    """Both messages of a message group are in flight at a time."""
    second_message(records)
    steps = story(records)
    of_b = [s for s in steps if s.id == "b" and s.kind not in {Kind.CREATE, Kind.ENTER}]
    for s in of_b:
        steps.remove(s)
    at = next(i for i, s in enumerate(steps) if s.kind is Kind.LEASE) + 1
    steps[at:at] = [replace(s, at_ms=2000, deadline_ms=0) for s in of_b]


def overtaken(records: Records) -> None:
    """The second message of a message group goes and commits before the first."""
    second_message(records)
    steps = story(records)
    begun = [s for s in steps if s.kind in {Kind.CREATE, Kind.ENTER}]
    first = [s for s in steps if s not in begun and s.id == "a"]
    second = [s for s in steps if s not in begun and s.id == "b"]
    late: dict[str, Any] = {"at_ms": 0, "until_ms": 0, "deadline_ms": 0, "ladder_ms": -1}
    steps[:] = begun + [replace(s, **late) for s in (*second, *first)]
    steps[:] = [replace(s, at_ms=0) for s in steps]


def in_two_places(records: Records) -> None:
    assert records.journal is not None
    records.journal.doubled[Entity("t", "g", "a")] = 3


LAST = {"lease_no": 1, "attempt": 1}
BREAKS: dict[str, tuple[str, Break]] = {
    "an accepted message was never stored": ("I1", with_history(publish("lost"))),
    "an accepted message is gone with nobody ending it": (
        "I1", change(Kind.REMOVE, verb="fail"),
    ),
    "a group has lost its message while another one keeps the body": (
        "I1", also(drop(Kind.SUCCEED), drop(Kind.REMOVE), held("a")),
    ),
    "a message is there that nobody published": (
        "I1", lambda r: story(r).append(step(Kind.CREATE, "x", at_ms=14_000)),
    ),
    "a message is there whose publish failed definitely": (
        "I1",
        also(
            lambda r: story(r).append(step(Kind.CREATE, "x", at_ms=14_000)),
            with_history(publish("x", FAIL)),
        ),
    ),
    "a message is there by the token of a publish that failed definitely": (
        "I1",
        also(
            lambda r: story(r).append(step(Kind.CREATE, "x", at_ms=14_000, token="ct-1")),
            with_history(publish("", FAIL, token="ct-1")),
        ),
    ),
    "a message is in two lists": ("I1b", held("a", "ready", "retry")),
    "a message is in a list twice": ("I1b", held("a", "ready", "ready")),
    "a message is in flight and waits": ("I1b", held("a", "inflight", "delay")),
    "a message was in two places for a moment": (
        "I1b", in_two_places,
    ),
    "a message is stored more often than it was published": (
        "I2", lambda r: story(r).extend(s for s in life()[:2]),
    ),
    "a body is stored that nobody has": ("I1c", held("a")),
    "a message is listed without a body": (
        "I1c", also(held("a", "ready"), put(PARTITION.bodies, {"b": "body"})),
    ),
    "a key is there that nobody writes": ("I1c", put(f"{PARTITION.base}what", "1")),
    "a key of the catalog is there that nobody writes": (
        "I1c", put("rqretry:test:{test}:what", "1"),
    ),
    "a message with an id of the caller's is stored twice": (
        "I2",
        also(
            lambda r: story(r).extend(s for s in life()[:2]),
            lambda r: r.history[0].fields.update(given=True),
        ),
    ),
    "a body is changed": ("I2", insert(Kind.OVERWRITE, Kind.LEASE)),
    "a lease has the number of the one before": ("I3", change(Kind.LEASE, 1, lease_no=1)),
    "an attempt is not counted": ("I3", change(Kind.LEASE, 1, attempt=1)),
    "an attempt is counted that nobody made": ("I3", change(Kind.LEASE, 0, attempt=2)),
    "there is one attempt too many": (
        "I3", lambda r: story(r).__setitem__(
            slice(None), [replace(s, max_attempts=1) for s in story(r)]),
    ),
    "the last attempt failed and the message is not dead": (
        "I3", change(Kind.FAIL, max_attempts=1),
    ),
    "a message is dead with attempts left": (
        "I3", insert(Kind.DEAD, Kind.PROMOTE, cause="failure", **LAST),
    ),
    "a retry waits less than its policy says": ("I4", change(Kind.FAIL, until_ms=12_999)),
    "a retry is promoted before it is due": ("I4", change(Kind.PROMOTE, at_ms=12_999)),
    "a retry is leased before it is due": (
        "I4", also(change(Kind.LEASE, 1, at_ms=12_999), change(Kind.PROMOTE, at_ms=12_999)),
    ),
    "a lease expires before its deadline": (
        "I4", change(Kind.FAIL, kind=Kind.EXPIRE, until_ms=0, lane="retry"),
    ),
    "two leases of a message live at a time": (
        "I5", insert(Kind.LEASE, Kind.RENEW, lease_no=2, attempt=1),
    ),
    "a lease settles that is not the newest": ("I6", change(Kind.SUCCEED, lease_no=1)),
    "something settles that nobody leased": ("I6", drop(Kind.LEASE, 1)),
    "a message commits twice": (
        "I6",
        also(
            insert(Kind.LEASE, Kind.REMOVE, lease_no=3, attempt=2),
            insert(Kind.SUCCEED, Kind.REMOVE, lease_no=3, attempt=2),
        ),
    ),
    "a message is dead and commits": (
        "I6", insert(Kind.DEAD, Kind.LEASE, 1, cause="rejected", **LAST),
    ),
    "a message commits that no handler has handled": (
        "I6", lambda r: r.effects.__setitem__(1, ran(2, "failure")),
    ),
    "two messages of a message group are out": ("I7", interleaved),
    "a message group commits out of order": ("I7", overtaken),
    "a handler starts twice under one lease": ("I8", lambda r: r.effects.append(ran(2))),
    "a handler starts under no lease": ("I8", lambda r: r.effects.append(ran(9))),
    "a second start follows no end of the first": (
        "I8",
        also(
            change(Kind.FAIL, kind=Kind.LEFTOVER),
            lambda r: r.effects.append(ran(1, "failure")),
        ),
    ),
    "a duplicate of nothing": ("I9", with_history(publish("x", duplicate=True))),
    "a message is new twice": (
        "I9",
        also(
            lambda r: r.history[0].fields.update(given=True),
            with_history(publish("a", given=True)),
        ),
    ),
    "an ack is accepted and nothing is committed": ("I9", with_history(ack(OK, 1))),
    "an ack is accepted twice": ("I9", with_history(ack(OK, 2), ack(OK, 2))),
    "an ack is refused and commits": ("I9", with_history(ack(FAIL, 2))),
    "an accepted message is unknown to the server": ("I11", with_history(publish("x"))),
    "less was confirmed than was asked for, without a word": (
        "I11", lambda r: r.history[0].fields.update(tier_wanted="replica:1"),
    ),
    "time goes back": ("I12", change(Kind.SUCCEED, at_ms=13_000)),
    "a deadline goes back": ("I12", change(Kind.RENEW, until_ms=31_000)),
    "a counter is off by one": (
        "I13",
        put(PARTITION.counters, {
            "lease:g": "2", "fail:g": "1", "promote:g": "1", "succeed:g": "2",
        }),
    ),
}  # fmt: skip


def test_a_clean_run_passes() -> None:
    report = check(clean())

    assert report.findings == []
    assert report.verdict is Verdict.PASS
    assert report.counts["accepted"] == report.counts["committed"] == 1
    assert report.duplicates == {"D-e": 1}


def test_a_clean_run_of_an_ordered_group_passes() -> None:
    records = clean()
    second_message(records)

    assert check(records).findings == []


@pytest.mark.parametrize("name", BREAKS)
def test_what_breaks_a_rule_is_found(name: str) -> None:
    invariant, broken = BREAKS[name]
    records = clean()
    broken(records)

    report = check(records)

    assert report.of(invariant), report.findings
    assert report.verdict is Verdict.FAIL
    assert report.of(invariant)[0].text in report.table()


def test_every_invariant_has_a_run_that_breaks_it() -> None:
    assert {invariant for invariant, _ in BREAKS.values()} | {"I10"} == {
        "I1", "I1b", "I1c", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I10", "I11", "I12",
        "I13",
    }  # fmt: skip


def unfinished(records: Records) -> None:
    """The message has come back, and nobody takes it."""
    del story(records)[6:]
    del records.effects[1:]
    hold(records, "a", "retry")
    put(PARTITION.counters, {"lease:g": "1", "fail:g": "1", "promote:g": "1"})(records)


def test_what_does_not_end_is_stuck() -> None:
    records = clean()
    unfinished(records)

    report = check(records)

    assert report.verdict is Verdict.STUCK
    assert [finding.subject for finding in report.of("I10")] == ["t/g/a"]


def test_a_run_that_was_to_stop_in_the_middle_may_have_messages_left() -> None:
    records = clean()
    unfinished(records)
    records.expect = Expectations(drained=False)

    assert check(records).findings == []


def test_records_that_contradict_each_other_judge_nothing() -> None:
    records = clean()
    records.final.values = {**records.final.values, GROUP.inflight: "x"}

    report = check(records)

    assert report.verdict is Verdict.INVALID
    assert "the journal ends with nothing" in report.table()


def test_what_was_confirmed_at_a_tier_that_the_faults_exceed_may_be_lost() -> None:
    records = clean()
    records.history += [publish("m"), publish("r", tier_confirmed="replica:1")]
    records.journal.published.update({("t", "m"), ("t", "r")})  # type: ignore[union-attr]
    for id_ in "mr":
        story(records).append(step(Kind.CREATE, id_, at_ms=14_000))
    records.expect = Expectations(covered=frozenset({"replica"}))

    report = check(records)

    assert [finding.subject for finding in report.of("I1")] == ["t/r"]
    assert report.counts["lost, at a tier that was not covered"] == 1


def test_a_publisher_that_was_reported_of_less_durability_was_not_deceived() -> None:
    for error in ("NotConfirmed", "PublishError"):
        records = clean()
        records.history[0].fields.update(tier_wanted="replica:1", error=error)
        assert check(records).of("I11") == []


def test_lost_messages_are_kept_apart_by_where_they_stand() -> None:
    records = clean()
    records.history = [publish(id_) for id_ in ("p", "a", "m", "b", "s")]
    second_message(records)

    assert check(records).lost == {"prefix": ["p"], "middle": ["m"], "suffix": ["s"]}


def test_an_ambiguous_publish_may_have_happened_or_not() -> None:
    records = clean()
    records.history += [publish("x", INFO), publish("", INFO, token="ct-2")]
    records.history[0] = publish("", INFO, token="ct-1")
    story(records)[0] = replace(story(records)[0], token="ct-1")

    report = check(records)

    assert report.findings == []
    assert report.counts["ambiguous, and stored"] == 1


def expired(records: Records) -> None:
    change(Kind.FAIL, kind=Kind.EXPIRE, at_ms=32_500, until_ms=0, lane="retry")(records)
    for kind in (Kind.PROMOTE, Kind.LEASE, Kind.SUCCEED, Kind.REMOVE):
        change(kind, -1, at_ms=32_600)(records)
    drop(Kind.PROMOTE)(records)
    counters = {"lease:g": "2", "expire:g": "1", "succeed:g": "1"}
    put(PARTITION.counters, counters)(records)


@pytest.mark.parametrize(
    ("kind", "first"),
    [
        ("D-a", {"ended_ns": 0, "outcome": ""}),
        ("D-b", {"ended_ns": 0, "outcome": "", "proc": "8"}),
        ("D-c", {}),
    ],
)
def test_a_second_start_after_an_expiry_is_explained(kind: str, first: dict[str, Any]) -> None:
    records = clean()
    expired(records)
    records.effects[0] = ran(1, **{"outcome": "success", **first})
    fields = {"what": "kill", "pid": 8}
    records.history.append(Operation("1", 3, "fault", OK, fields, began_ns=3, ended_ns=3))

    report = check(records)

    assert report.findings == []
    assert report.duplicates == {kind: 1}


def test_a_late_retry_counts_only_where_nothing_was_broken() -> None:
    records = clean()
    for kind in (Kind.LEASE, Kind.SUCCEED, Kind.REMOVE):
        change(kind, -1, at_ms=15_000)(records)
    records.expect = Expectations(lateness_ms=1500)

    assert check(records).findings == []
    assert check(records).seconds["a retry was late by, most"] == 2.0
    records.expect = Expectations(lateness_ms=1500, quiet=((0, 60_000),))
    assert check(records).of("I4")
