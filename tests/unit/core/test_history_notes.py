"""The blob in which publish notes tags, keys, message groups and traces for the history."""

import msgpack
import pytest

from rqretry.core.history_notes import NOTHING, Noted, decode_noted, encode_noted, noted
from rqretry.core.message import OutgoingMessage
from rqretry.core.message_id import make_ids
from rqretry.producer.encode import draft
from rqretry.protocol.publish import Prepared

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
FULL = Noted("web", ("k1", "k2"), "g", TRACE)


def test_a_plain_message_has_nothing_to_note_and_its_call_no_blob() -> None:
    (id_,) = make_ids(1, 0)
    message, _ = draft({"n": 1}, id_, 0)
    assert message.noted is None
    assert encode_noted([id_], [None], partial=False) == b""


def test_tag_keys_and_trace_of_a_message_are_noted() -> None:
    item = OutgoingMessage(body=1, tag="web", keys=["k1"], headers={"traceparent": PARENT})
    message, _ = draft(item, "made", 0)
    assert message.noted == Noted("web", ("k1",), None, TRACE)


@pytest.mark.parametrize("parent", ["", "00-xyz", PARENT.upper(), PARENT + "-more", "\x00"])
def test_what_is_no_traceparent_is_no_trace(parent: str) -> None:
    assert noted(None, (), {"traceparent": parent}) is None


def test_a_blob_reads_back_in_step_with_the_ids_of_its_entry() -> None:
    notes = [FULL, None, Noted(tag="t")]
    blob = encode_noted(["a", "b", "c"], notes, partial=False)
    assert decode_noted(blob, ["a", "b", "c"]) == [FULL, NOTHING, Noted(tag="t")]


def test_a_blob_of_a_call_that_was_accepted_in_part_reads_back_by_id() -> None:
    blob = encode_noted(["a", "b", "c"], [FULL, None, Noted(tag="t")], partial=True)
    assert decode_noted(blob, ["c", "a"]) == [Noted(tag="t"), FULL]


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"\xc1",
        b"\x93\x01",
        msgpack.packb([2, None, None, None, None, None]),
        msgpack.packb([1, None, ["t"], None, None, None]),
        msgpack.packb([1, None, 7, None, None, None]),
        msgpack.packb({"a": 1}),
    ],
)
def test_a_blob_that_is_damaged_newer_or_out_of_step_says_nothing(blob: bytes) -> None:
    assert decode_noted(blob, ["a", "b"]) == [NOTHING, NOTHING]


def test_the_note_is_not_sent_as_a_part_of_the_message() -> None:
    assert Prepared("a", b"", "", "", FULL)[:4] == ("a", b"", "", "")
