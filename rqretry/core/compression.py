"""Compressed bodies: msgpack's extension type 1 where a body stands, holding a Zstandard frame.

The frame is of the body as msgpack has it, and says how long that is, which is checked before
anything is unpacked. Another type is a compression of a newer version (docs/decisions/0109).
"""

import logging
import threading
from functools import cache
from importlib import import_module
from typing import Any

import msgpack

from rqretry.core.errors import CodecError

_ZSTD = 1
_BODY_AT = 2
"""Behind the head of the array and the version, of a byte each."""
_LEAST_HEAD = 0x92
"""The head of a message that has nothing behind its body."""
_EXTENSIONS = frozenset({0xC7, 0xC8, 0xC9, *range(0xD4, 0xD9)})
"""How msgpack begins an extension type."""
_MOST_HEADER = 5
"""What msgpack writes in front of raw bytes."""
log = logging.getLogger("rqretry")


def compress(data: bytes, least: int) -> bytes:
    """A message that `encode` made, its body compressed if it takes `least` bytes or more.

    As it is where that would not make it smaller, where it is done, and without zstandard.
    """
    if len(data) - _BODY_AT < least or data[_BODY_AT] in _EXTENSIONS:
        return data
    body = data[_BODY_AT : _end_of_body(data)]
    compressor = _compressor() if len(body) >= least else None
    if compressor is None:
        return data
    made: bytes = msgpack.packb(msgpack.ExtType(_ZSTD, compressor.compress(body)))
    if len(made) >= len(body):
        return data
    return b"".join((data[:_BODY_AT], made, data[_BODY_AT + len(body) :]))


def decompress(packed: msgpack.ExtType, most: int) -> bytes:
    """A body as msgpack has it; raises CodecError, also where it takes more than `most` bytes."""
    if packed.code != _ZSTD:
        raise CodecError(
            f"the body is compressed in way {packed.code}, which this version does not know: a"
            " newer rqretry wrote it, upgrade"
        )
    zstandard = _zstandard()
    if zstandard is None:
        raise CodecError("the body is compressed: install rqretry[zstd] to read it")
    try:
        size = zstandard.frame_content_size(packed.data)
        if not 0 < size <= most + _MOST_HEADER:
            takes = "an unknown number of" if size < 0 else size
            raise CodecError(f"the body takes {takes} bytes uncompressed, and the limit is {most}")
        # It unpacks what the frame says, and not a byte more.
        body: bytes = zstandard.ZstdDecompressor().decompress(packed.data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise CodecError(f"the compressed body is damaged: {error}") from error
    if body[0] in _EXTENSIONS:
        raise CodecError("the body is compressed twice")
    return body


def uncompressed_size(data: bytes) -> int | None:
    """What a stored message would take uncompressed; None where that cannot be known."""
    if len(data) <= _BODY_AT or data[_BODY_AT] not in _EXTENSIONS:
        return len(data)
    try:
        frame = msgpack.unpackb(data)[1].data
        return len(data) - len(frame) + max(0, int(_zstandard().frame_content_size(frame)))
    except Exception:  # noqa: BLE001 - it is damaged, of a newer version, or nothing can read it
        return None


def _end_of_body(data: bytes) -> int:
    if data[0] == _LEAST_HEAD:
        return len(data)
    unpacker = msgpack.Unpacker(max_buffer_size=len(data))
    unpacker.feed(memoryview(data)[_BODY_AT:])
    unpacker.skip()
    return _BODY_AT + int(unpacker.tell())


@cache
def _zstandard() -> Any:
    try:
        return import_module("zstandard")
    except ImportError:
        return None


@cache
def _warn_once() -> None:
    log.warning(
        "a topic compresses its bodies, and zstandard is not installed: this process publishes"
        " them as they are; install rqretry[zstd]"
    )


_threads = threading.local()


def _compressor() -> Any:
    """That of this thread, as no two may use one; None without zstandard."""
    if not hasattr(_threads, "compressor"):
        zstandard = _zstandard()
        if zstandard is None:
            _warn_once()
            return None
        _threads.compressor = zstandard.ZstdCompressor()
    return _threads.compressor
