import datetime as dt
import math
import pickle
import struct
import threading
import tracemalloc
from collections import OrderedDict
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rqretry.core.envelope import (
    Envelope,
    checksum,
    decode,
    delayed_until,
    digest,
    encode,
    encode_all,
    stamp_all,
)
from rqretry.core.errors import CodecError, InvalidArgument, MessageTooLarge

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
BODIES = st.binary(max_size=50) | st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5)
)
ENVELOPES = st.builds(
    Envelope,
    body=BODIES,
    tag=st.none() | TEXT,
    keys=st.lists(TEXT, max_size=3).map(tuple),
    headers=st.dictionaries(TEXT, TEXT, max_size=3),
    message_group=st.none() | TEXT,
    born_ms=st.none() | st.integers(0, 2**53),
    due_ms=st.none(),
)


def properties(envelope: Any) -> Any:
    return {name: value for name, value in envelope._asdict().items() if name != "body"}


@given(ENVELOPES)
def test_what_is_encoded_is_decoded(envelope: Any) -> None:
    assert decode(encode(envelope.body, **properties(envelope))) == envelope


def test_a_delayed_message_has_its_due_time_in_place_of_a_message_group() -> None:
    data = encode(1, keys=["k"], due_ms=9)
    assert data == msgpack.packb([1, 1, None, ["k"], None, 9])
    assert decode(data) == Envelope(1, None, ("k",), {}, None, None, 9)
    assert delayed_until(encode(1, keys=["k"]), 9) == data
    assert decode(encode(1, born_ms=5, due_ms=9))[-2:] == (5, 9)


def test_the_least_message_is_a_version_and_a_body() -> None:
    assert encode(None) == msgpack.packb([1, None])
    assert encode({"a": 1}, tag=None, keys=[], headers={}) == msgpack.packb([1, {"a": 1}])


def test_what_is_nil_at_the_end_is_left_out() -> None:
    assert encode(1, tag="t") == msgpack.packb([1, 1, "t"])
    assert encode(1, headers={"a": "b"}) == msgpack.packb([1, 1, None, None, {"a": "b"}])
    assert encode(None, born_ms=5) == msgpack.packb([1, None, None, None, None, None, 5])


@pytest.mark.parametrize("raw", [b"", b"\x00\xff", bytearray(b"ab"), memoryview(b"abcdef")[::2]])
def test_raw_bytes_are_a_body_as_a_whole(raw: Any) -> None:
    body = decode(encode(raw)).body
    assert type(body) is bytes
    assert body == bytes(raw)


def test_tuples_and_ordered_dicts_are_sent_as_lists_and_dicts() -> None:
    assert decode(encode(OrderedDict(a=(1, 2), b=OrderedDict()))).body == {"a": [1, 2], "b": {}}


def loop() -> Any:
    body: list[Any] = []
    body.append(body)
    return body


def wide_loop() -> Any:
    body: list[Any] = []
    body += [body, body]
    return body


def shared(depth: Any) -> Any:
    body: list[Any] = []
    for _ in range(depth):
        body = [body, body]
    return body


def nested(depth: Any) -> Any:
    body: Any = 1
    for _ in range(depth):
        body = [body]
    return body


@pytest.mark.parametrize(
    ("body", "recorded"),
    [
        (math.nan, "^body is nan, which JSON does not have"),
        ({"a": math.inf}, r"^body\.a is inf"),
        ({"items": [1, 2, 3, {"price": -math.inf}]}, r"^body\.items\[3\]\.price is -inf"),
        ({1: "a"}, "^body has the key 1, which is not str"),
        ({"a": {None: 1}}, r"^body\.a has the key None"),
        ({b"a": 1}, "has the key b'a'"),
        ({"a b": {"x": {1, 2}}}, r"^body\['a b'\]\.x \{1, 2\} is set, no JSON value"),
        (object(), "is object, no JSON value: convert it first"),
        ({"at": dt.datetime(2020, 1, 1)}, r"^body\.at .* is datetime"),  # noqa: DTZ001
        ([Decimal(1)], r"^body\[0\] Decimal\('1'\) is Decimal"),
        ([msgpack.ExtType(1, b"x")], r"^body\[0\]"),
        ([msgpack.Timestamp(1)], r"^body\[0\] .*Timestamp"),
        ({"raw": b"x"}, r"^body\.raw is raw bytes inside JSON.*base64"),
        ([bytearray(b"x")], r"^body\[0\] is raw bytes"),
        ("\ud800", r"^body '\\ud800' holds half of a surrogate pair"),
        ({"a": ["\udfff"]}, r"^body\.a\[0\]"),
        ({"\ud800": 1}, "^body .*surrogate"),
        (2**64, "^body 18446744073709551616 does not fit into 64 bits"),
        ({"n": -(2**63) - 1}, r"^body\.n .*64 bits"),
        ({"n": [10**10_000]}, r"^body\.n\[0\]"),
        (nested(65), "nested more than 64 levels"),
        (nested(100_000), "nested more than 64 levels"),
        (loop(), "nested more than 64 levels"),
        (wide_loop(), "nested more than 64 levels"),
        (shared(60), "one of more than 100000 values"),
        ([0] * 100_001, r"^body\[100000\] is one of more than 100000 values"),
        ({str(n): n for n in range(100_001)}, r"^body\['100000'\] is one of more"),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, str) else type(value).__name__,
)
def test_what_cannot_be_sent_is_refused_with_the_path_to_it(body: Any, recorded: Any) -> None:
    with pytest.raises(CodecError, match=recorded):
        encode(body)


def test_the_limits_of_depth_and_items_are_allowed_both_ways() -> None:
    bodies: list[Any] = [nested(64), [0] * 100_000, [[]] * 100_000, ["x" * 10] * 99_999]
    for body in bodies:
        assert decode(encode(body)).body == body


def test_a_broken_property_is_a_codec_error_too() -> None:
    with pytest.raises(CodecError, match="cannot be encoded"):
        encode(1, tag="\ud800")


class Publishing(dict[str, Any]):
    def items(self) -> Any:
        encode({"inner": 1})
        return super().items()


def test_a_dict_that_publishes_while_it_is_packed_harms_nothing() -> None:
    assert decode(encode(Publishing(a=1))).body == {"a": 1}


def test_a_body_over_the_limit_reports_its_size_the_limit_and_the_fix() -> None:
    with pytest.raises(MessageTooLarge, match="takes 11 bytes and the limit is 10: store it else"):
        encode(b"x" * 11, limit=10)
    with pytest.raises(MessageTooLarge, match="takes 11 bytes"):
        encode("x" * 10, limit=10)
    with pytest.raises(MessageTooLarge, match="takes 4194305 bytes and the limit is 4194304"):
        encode(bytes(4 * 1024 * 1024 + 1))
    assert issubclass(MessageTooLarge, InvalidArgument)


def test_a_body_at_the_limit_may_have_properties() -> None:
    assert decode(encode(b"x" * 10, limit=10, tag="t" * 100)).body == b"x" * 10
    assert len(decode(encode(bytes(4 * 1024 * 1024), tag="t")).body) == 4 * 1024 * 1024
    assert decode(encode({"a": "x" * 8}, limit=12)).body == {"a": "x" * 8}


def test_many_bodies_are_encoded_and_stamped_as_each_alone() -> None:
    bodies: list[Any] = [{"n": 1}, None, [], b"raw", "text", {"in": {"x": [1.5]}}, {"s": "x" * 300}]
    plain = encode_all(bodies)
    assert plain == [encode(body) for body in bodies]
    for born_ms in (0, 1_795_000_000_000):
        assert stamp_all(plain, born_ms) == [encode(body, born_ms=born_ms) for body in bodies]


def test_a_large_message_does_not_change_the_next_one() -> None:
    assert len(encode("x" * 2_000_000)) > 2_000_000
    assert decode(encode({"a": 1})).body == {"a": 1}


def test_a_refused_body_does_not_change_the_next_one() -> None:
    with pytest.raises(CodecError):
        encode({"a": "x" * 1000, "b": "\ud800"})
    assert encode({"a": 1}) == msgpack.packb([1, {"a": 1}])


def test_threads_do_not_mix_their_messages() -> None:
    wrong: list[Any] = []

    def work(name: Any) -> None:
        bodies = [{"name": name, "n": n} for n in range(300)]
        wrong.extend(body for body in bodies if decode(encode(body)).body != body)

    threads = [threading.Thread(target=work, args=(str(n),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def pack(*fields: object) -> Any:
    return msgpack.packb(list(fields))


HOSTILE = {
    "nothing": b"",
    "one byte": b"\xc1",
    "text": b"hello",
    "pickle": pickle.dumps({"a": 1}),
    "pickle opcodes": b"cos\nsystem\n(S'echo'\ntR.",
    "truncated": encode({"a": "long text"})[:-1],
    "trailing": encode({"a": 1}) + b"\x01",
    "two messages": encode(1) * 2,
    "utf-16": "[1, 2]".encode("utf-16"),
    "array count bomb": b"\xdd\x7f\xff\xff\xff",
    "map count bomb": b"\x92\x01\xdf\x7f\xff\xff\xff",
    "string count bomb": b"\x92\x01\xdb\xff\xff\xff\xff",
    "nested count bomb": b"\x92\x01" + b"\xdd\x00\x01\x00\x00" * 500,
    "large nested count bomb": b"\x92\x01" + b"\xdd\x00\x01\x00\x00" * 30_000,
    "depth bomb": b"\x91" * 100_000 + b"\x01",
    "body too deep": pack(1, nested(65)),
    "body deeper than the parser": b"\x92\x01" + b"\x91" * 900 + b"\x01",
    "a megabyte of empty arrays": b"\x92\x01\xdd" + struct.pack(">I", 2**20) + b"\x90" * 2**20,
    "many small arrays": b"\x92\x01" + b"\x9a" + (b"\xdc\xff\xff" + b"\x90" * 65535) * 10,
    "many small maps": pack(1, [{"a": 1}] * 60_000),
    "unhashable key": b"\x92\x01\x81\x90\x01",
    "int key": pack(1, {1: 2}),
    "bytes key": pack(1, {b"a": 2}),
    "nested bytes": pack(1, [b"x"]),
    "extension": pack(1, msgpack.ExtType(5, b"x")),
    "timestamp": pack(1, msgpack.Timestamp(1)),
    "bad timestamp": b"\x92\x01\xc7\x03\xff\x00\x00\x00",
    "nan": pack(1, math.nan),
    "nested inf": pack(1, {"a": [math.inf]}),
    "bad utf-8": b"\x92\x01\xa2\xff\xfe",
    "surrogate": b"\x92\x01\xa3\xed\xa0\x80",
    "no array": msgpack.packb({"1": 2}),
    "a number": msgpack.packb(1),
    "empty array": pack(),
    "no body": pack(1),
    "too many fields": pack(1, 2, None, None, None, None, None, None),
    "true as the version": pack(True, 2),
    "float as the version": pack(1.0, 2),
    "text as the version": pack("1", 2),
    "version 0": pack(0, 2),
    "tag of another type": pack(1, 2, 3),
    "keys of another type": pack(1, 2, None, "k"),
    "key of another type": pack(1, 2, None, ["k", 1]),
    "headers of another type": pack(1, 2, None, None, ["a"]),
    "header of another type": pack(1, 2, None, None, {"a": 1}),
    "message group of another type": pack(1, 2, None, None, None, b"g"),
    "time of another type": pack(1, 2, None, None, None, None, 1.5),
    "one key twice": b"\x92\x01\x82\xa1a\x01\xa1a\x02",
    "one key twice in a longer spelling": b"\x92\xcc\x01\xde\x00\x02\xa1a\x01\xa1a\x02",
    "one key twice inside": b"\x92\x01\x91\x82\xa1a\x01\xa1a\x02",
    "one header twice": b"\x95\x01\x02\xc0\xc0\x82\xa1a\xa1b\xa1a\xa1c",
    "one key twice of many": b"\x92\x01\xdf"
    + struct.pack(">I", 40_000)
    + b"".join(b"\xa5%05d\x01" % (n // 2) for n in range(40_000)),
    "no bytes": None,
    "text instead of bytes": "abc",
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_bytes_are_a_codec_error_with_a_reason(data: Any) -> None:
    with pytest.raises(CodecError) as caught:
        decode(data)
    assert 10 < len(str(caught.value)) < 400


@pytest.mark.parametrize("count", [0, 1, 15, 16, 300])
def test_a_map_is_read_however_many_keys_it_has(count: int) -> None:
    body = {str(n): n for n in range(count)}
    assert decode(encode(body)).body == body
    longer = b"\x92\xcc\x01" + encode(body)[2:]
    assert decode(longer).body == body


def test_a_newer_version_says_so() -> None:
    with pytest.raises(CodecError, match=r"version 2 .*newer rqretry wrote it, upgrade"):
        decode(pack(2, "body", "what else"))


def test_names_that_python_treats_specially_are_plain_data() -> None:
    body = {"__proto__": 1, "__class__": {"constructor": [1]}}
    assert decode(encode(body)).body == body


@given(st.binary(max_size=200))
def test_random_bytes_are_decoded_or_refused(data: Any) -> None:
    try:
        envelope = decode(data)
    except CodecError:
        return
    assert decode(encode(envelope.body, **properties(envelope))) == envelope


@given(ENVELOPES, st.data())
def test_a_damaged_message_is_decoded_or_refused(envelope: Any, data: Any) -> None:
    stored = bytearray(encode(envelope.body, **properties(envelope)))
    position = data.draw(st.integers(0, len(stored) - 1))
    stored[position] = data.draw(st.integers(0, 255))
    try:
        decode(bytes(stored))
    except CodecError as error:
        assert str(error)


def test_a_digest_is_16_hex_characters() -> None:
    assert digest(b"") == "e4a6a0577479b2b4"
    assert digest(b"a") != digest(b"b")


def test_a_checksum_knows_where_each_part_ends() -> None:
    splits = [[b"ab", b"c"], [b"a", b"bc"], [b"abc"], [b"abc", b""], [b"", b"abc"], [b"c", b"ab"]]
    sums = {checksum(parts) for parts in splits}
    assert len(sums) == len(splits)
    assert checksum(iter([b"ab", b"c"])) == checksum([b"ab", b"c"])
    assert checksum([]) != checksum([b""])
    assert all(len(text) == 16 for text in sums)


@pytest.mark.parametrize(
    "pack",
    [
        lambda large: encode({"a": large}),
        lambda large: encode_all([large]),
        lambda large: checksum([large]),
    ],
    ids=["encode", "encode_all", "checksum"],
)
def test_no_thread_keeps_the_memory_that_a_large_message_took(pack: Callable[[str], Any]) -> None:
    large, kept = "x" * (3 * 1024 * 1024), list[int]()

    def work() -> None:  # in a thread of its own, with a packer that is new
        pack(large)
        kept.append(tracemalloc.get_traced_memory()[0])

    tracemalloc.start()
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        tracemalloc.stop()
    assert kept[0] < 2 * 1024 * 1024
