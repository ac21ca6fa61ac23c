"""Compressed bodies: what is packed is read again, and what is hostile is refused unpacked."""

import logging
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest
import zstandard

from rqretry.core import compression
from rqretry.core.compression import compress, uncompressed_size
from rqretry.core.envelope import decode, encode, encode_all, stamp_all
from rqretry.core.errors import CodecError
from rqretry.core.limits import MAX_BODY_BYTES

TEXT = "the quick brown fox jumps over the lazy dog. " * 200
LEAST = 4096
PROPERTIES = {"tag": "t", "keys": ["k"], "headers": {"h": "v"}, "message_group": "g"}


@pytest.fixture
def without_zstandard(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process in which it is not installed."""
    monkeypatch.setitem(sys.modules, "zstandard", None)
    for cached in (compression._zstandard, compression._warn_once):
        cached.cache_clear()
    monkeypatch.setattr(compression, "_threads", threading.local())
    yield
    monkeypatch.undo()
    compression._zstandard.cache_clear()


def packed(frame: bytes, code: int = 1) -> bytes:
    """A message with this in the place of its body."""
    return bytes(msgpack.packb([1, msgpack.ExtType(code, frame)]))


@pytest.mark.parametrize("body", [TEXT, TEXT.encode(), {"text": TEXT, "n": [1, {"x": None}]}])
@pytest.mark.parametrize("more", [{}, PROPERTIES, {"born_ms": 5}, {"due_ms": 7, "tag": "t"}])
def test_a_compressed_message_is_read_as_it_was_published(body: Any, more: Any) -> None:
    data = encode(body, **more)
    small = compress(data, LEAST)
    assert len(small) < len(data) / 10
    assert decode(small) == decode(data)
    assert uncompressed_size(small) == pytest.approx(len(data), abs=10)
    assert compress(small, LEAST) == small


def test_what_is_small_or_does_not_shrink_is_left_as_it_is() -> None:
    for body in (TEXT[: LEAST - 10], os.urandom(2 * LEAST), None):
        data = encode(body, headers={"much": TEXT})
        assert compress(data, LEAST) is data
        assert uncompressed_size(data) == len(data)
    (stamped,) = stamp_all(encode_all([TEXT]), 5)
    assert decode(compress(stamped, LEAST)) == decode(stamped)
    assert compress(encode("x" * 100), 1) != encode("x" * 100)


def test_a_body_at_the_limit_is_read() -> None:
    data = encode(bytes(MAX_BODY_BYTES))
    assert len(compress(data, LEAST)) < 1000
    assert decode(compress(data, LEAST)).body == bytes(MAX_BODY_BYTES)


ZSTD = zstandard.ZstdCompressor()
TWO = zstandard.ZstdCompressor().compress(msgpack.packb("a" * 99))
HOSTILE = {
    "bomb": (packed(ZSTD.compress(bytes(MAX_BODY_BYTES + 6))), "4194310 bytes uncompressed"),
    "length unknown": (
        packed(zstandard.ZstdCompressor(write_content_size=False).compress(b"\xa1a" * 99)),
        "an unknown number of bytes",
    ),
    "says less than it holds": (
        packed(TWO[:5] + bytes([TWO[5] - 1]) + TWO[6:]),
        "the compressed body is damaged",
    ),
    "says nothing": (packed(ZSTD.compress(b"")), "takes 0 bytes"),
    "no frame": (packed(b"no frame at all"), "the compressed body is damaged"),
    "cut off": (packed(TWO[:-3]), "the compressed body is damaged"),
    "more behind it": (packed(TWO + TWO), "the compressed body is damaged"),
    "twice": (packed(ZSTD.compress(packed(TWO)[2:])), "compressed twice"),
    "two values": (packed(ZSTD.compress(b"\x01\x02")), "cannot be read"),
    "no value": (packed(ZSTD.compress(b"\xc1")), "cannot be read"),
    "a list bomb": (packed(ZSTD.compress(msgpack.packb([[]] * 200_000))), "max_array_len"),
    "a key twice": (packed(ZSTD.compress(b"\x82\xa1a\x01\xa1a\x02")), "a key twice"),
    "newer": (packed(b"?", code=2), "in way 2, .* a newer rqretry wrote it, upgrade"),
    "inside": (bytes(msgpack.packb([1, [msgpack.ExtType(1, TWO)]])), "raw bytes inside"),
}


@pytest.mark.parametrize(("data", "reason"), HOSTILE.values(), ids=HOSTILE)
def test_what_is_hostile_or_newer_is_refused_with_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(CodecError, match=reason):
        decode(data)


@pytest.mark.usefixtures("without_zstandard")
def test_without_zstandard_reading_names_the_extra_and_publishing_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(CodecError, match=r"install rqretry\[zstd\]"):
        decode(packed(TWO))
    assert uncompressed_size(packed(TWO)) is None
    data = encode(TEXT)
    with caplog.at_level(logging.WARNING):
        assert compress(data, LEAST) is compress(data, LEAST) is data
    (warned,) = caplog.messages
    assert "install rqretry[zstd]" in warned
