"""Entries of the history as rows, without a server and without Spark: also damaged and cut ones."""

from datetime import UTC, datetime
from math import nan
from typing import Any

import pyarrow as pa
import pytest

from rqretry.core.failure_record import describe_cause
from rqretry.core.history_notes import Noted, encode_noted
from rqretry.protocol.history import Entry
from rqretry.protocol.lease import encode_times
from rqretry.spark.columns import arrow_schema, schema_of
from rqretry.spark.events import Page
from rqretry.spark.options import read_options
from rqretry.spark.position import Position

TRACE = "0af7651916cd43dd8448eb211c80319c"
OPTIONS = read_options({"topic": "t"})
SCHEMA = arrow_schema(OPTIONS, schema_of(OPTIONS))
END = Position(10**15)
WAITS = "waiting_retry"
PLACE = ("attempt", "outcome", "level", "due_time")


def entry(
    name: str, verb: str, ids: str, notes: str = "", blob: bytes = b"", times: bytes = b""
) -> Entry:
    values = (verb, "" if verb == "publish" else "g", "w1", ids, notes)
    request_parts = [word for pair in zip("egwid", values, strict=True) for word in pair]
    timed = [b"t", times] if times else []
    return name.encode(), [*(word.encode() for word in request_parts), b"b", blob, *timed]


def rows(
    *entries: Entry, start: str = "0-0:0", end: Position = END, schema: pa.Schema = SCHEMA
) -> list[dict[str, Any]]:
    page = Page("t", 3, entries, Position.parse(start), end)
    batch = page.batch(schema)
    assert batch.num_rows == page.rows
    batch.validate(full=True)
    listed: list[dict[str, Any]] = batch.to_pylist()
    return listed


def places(*entries: Entry) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in PLACE) for row in rows(*entries)]


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def test_what_a_call_has_in_common_is_repeated_for_each_of_its_messages() -> None:
    first, second, third = rows(entry("5-1", "lease", "a b"), entry("1500-0", "publish", "c"))
    assert (first["topic"], first["partition"], first["offset"]) == ("t", 3, "5-1:0")
    assert (second["offset"], second["message_id"], second["event"]) == ("5-1:1", "b", "lease")
    assert (second["group"], second["worker"], second["event_time"]) == ("g", "w1", at(5))
    assert (third["offset"], third["group"], third["event_time"]) == ("1500-0:0", None, at(1500))


@pytest.mark.parametrize(
    ("verb", "notes", "expected"),
    [
        ("publish", "", [(None, "stored", None, None)] * 2),
        ("lease", "", [(1, "inflight", None, None)] * 2),
        ("lease", "- 7:4:0:0", [(1, "inflight", None, None), (4, "inflight", None, None)]),
        ("succeed", "", [(1, "committed", None, None)] * 2),
        ("succeed", "1 16", [(1, "committed", None, None), (16, "committed", None, None)]),
        ("fail", "2,W,4,9000 17,D", [(2, WAITS, 4, at(9000)), (17, "dead", None, None)]),
        ("expire", "1,R 2,W,3,1.5e3", [(1, "ready", None, None), (2, WAITS, 3, at(1500))]),
        ("release", "1,R 1,R", [(1, "ready", None, None)] * 2),
        ("redrive", "", [(None, "ready", None, None)] * 2),
        ("redrive", "R W,1,7000", [(None, "ready", None, None), (None, WAITS, 1, at(7000))]),
        ("change", "1,9000 1,9000", [(1, "inflight", None, at(9000))] * 2),
        ("fail", "1,R 3,D", [(1, "ready", None, None), (3, "dead", None, None)]),
        ("promote", "", [(None, "ready", None, None)] * 2),
        ("of-a-newer-version", "", [(None, None, None, None)] * 2),
    ],
)  # fmt: skip
def test_where_each_verb_leaves_its_messages(
    verb: str, notes: str, expected: list[tuple[Any, ...]]
) -> None:
    assert places(entry("1000-0", verb, "a b", notes)) == expected


@pytest.mark.parametrize("notes", ["x y", "1,Q,,", "\xff", "1,R 1,R 1,R"])
def test_a_note_that_cannot_be_read_says_nothing_and_moves_no_other_row(notes: str) -> None:
    found = places(entry("1-0", "fail", "a b", notes), entry("2-0", "lease", "c"))
    assert len(found) == 3
    assert found[2] == (1, "inflight", None, None)


def test_errors_are_reported_by_their_lines_and_by_expiry() -> None:
    lines = [
        describe_cause("failure", ',"d":no', "w1", 0.25),
        describe_cause("timeout", "late", ',"w":"', 900.0, trace=TRACE),
        "damaged",
    ]
    found = rows(
        entry("1-0", "fail", "a b c", "1,D 1,D 1,D", "\n".join(lines).encode()),
        entry("2-0", "expire", "d", "1,R"),
        entry("3-0", "succeed", "e"),
        entry("4-0", "fail", "f g", "1,D 1,D", lines[0].encode()),
    )
    shown = [(row["error_type"], row["error_message"]) for row in found]
    assert shown[:3] == [(None, ',"d":no'), ("timeout", "late"), (None, None)]
    assert shown[3:] == [("expired", None), (None, None), (None, ',"d":no'), (None, None)]
    assert found[0]["fingerprint"] == found[5]["fingerprint"] != found[1]["fingerprint"]
    assert [len(row["fingerprint"] or "") for row in found] == [16, 16, 0, 16, 0, 16, 0]


def test_properties_stand_beside_the_messages_that_have_them() -> None:
    notes = [Noted("web", ("k1", "k2"), "m", TRACE), None]
    whole = encode_noted(["a", "b"], notes, partial=False)
    part = encode_noted(["x", "c", "d"], [None, None, Noted("late")], partial=True)
    found = rows(
        entry("1-0", "publish", "a b", "", whole),
        entry("2-0", "publish", "d c", "", part),
        entry("3-0", "publish", "e", "", b"\xc1"),
    )
    names = ("tag", "keys", "message_group", "trace_id")
    stated = [tuple(row[name] for name in names) for row in found]
    assert stated[:2] == [("web", ["k1", "k2"], "m", TRACE), (None,) * 4]
    assert stated[2:] == [("late", None, None, None), (None,) * 4, (None,) * 4]


def test_a_range_that_begins_and_ends_inside_entries_is_cut_to_the_row() -> None:
    three = [
        entry("1-0", "lease", "a b c"),
        entry("2-0", "succeed", "d", "5"),
        entry("3-0", "lease", "e f"),
    ]

    def cut(start: str, end: str, *entries: Entry) -> str:
        found = rows(*entries, start=start, end=Position.parse(end))
        return "".join(row["message_id"] for row in found)

    assert cut("1-0:1", "3-0:1", *three) == "bcde"
    assert cut("1-0:3", "3-0:0", *three) == "d"
    assert cut("1-0:1", "1-0:2", three[0]) == "b"
    assert cut("1-0:2", "1-0:1", three[0]) == ""
    assert cut("0-0:0", "9-0:0") == ""
    (row, *_) = rows(*three[1:], start="2-0:0")
    assert (row["offset"], row["attempt"]) == ("2-0:0", 5)


def test_when_handlers_ran_stands_beside_what_they_settled() -> None:
    times = encode_times([0.064, 0.0008, nan, nan])
    found = rows(
        entry("5-7", "succeed", "a b", times=times),
        entry("6-8", "lease", "c"),
        entry("7-9", "fail", "d", "1,D", times=b"damaged"),
    )
    assert [row["entry"] for row in found] == [7, 7, 8, 9]
    assert found[0]["buffer_seconds"] == pytest.approx(0.064, rel=0.0005)
    assert found[0]["handler_seconds"] == pytest.approx(0.0008, rel=0.0005)
    assert {row["buffer_seconds"] for row in found[1:]} == {None}
    assert {row["handler_seconds"] for row in found[1:]} == {None}


def test_only_the_columns_that_are_asked_for_are_made() -> None:
    schema = pa.schema([("attempt", pa.int32()), ("message_id", pa.string())])
    found = rows(entry("1-0", "succeed", "a b", "1 2"), schema=schema)
    assert found == [{"attempt": 1, "message_id": "a"}, {"attempt": 2, "message_id": "b"}]
