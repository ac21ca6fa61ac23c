"""Message ids that the client makes: 16 sortable characters (docs/decisions/0003).

96 bits, base 64 in ASCII order: 42 bits of server milliseconds as the client estimates them, which
is also the message's published_at, and 54 random bits. Made before the first send, so that a
repeated call carries the same ids.
"""

import base64
import binascii
import os
import time
import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Self

_ORDERED = b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
_STANDARD = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_TO_ORDERED = bytes.maketrans(_STANDARD, _ORDERED)
_TO_STANDARD = bytes.maketrans(_ORDERED, _STANDARD)
_RANDOM_BITS = 54
_TIME_MASK = (1 << 42) - 1
LENGTH = 16
_BYTES = 12
_NOISE_BYTES = 9
_NOISE_EXCESS = 8 * _NOISE_BYTES - _RANDOM_BITS
_LEFT_BITS = 48 - 42
_TIME_LENGTH = 7
"""Characters that hold the time, 6 bits each; the other nine hold the random bits."""
_UINT64, _TAIL_BYTES = b"\xcf", 9
_new = str.__new__


class MessageId(str):  # noqa: SLOT000 - a class attribute costs an id nothing
    """A message's id, with what publishing it found out.

    Attributes:
        duplicate: The message was published before with this id and the same content.
        durability: What confirmed it: "memory", the primary executed it.
    """

    duplicate: bool = False
    durability: str = "memory"

    def __new__(cls, text: str, *, duplicate: bool = False, durability: str = "memory") -> Self:
        """Make an id; `duplicate` and `durability` say what publishing found out."""
        made = super().__new__(cls, text)
        if duplicate:
            made.duplicate = True
        if durability != "memory":
            made.durability = durability
        return made


def new_ids(texts: Iterable[str]) -> list[MessageId]:
    """Ids of messages that were stored; a third of the cost of making them one by one."""
    return [_new(MessageId, text) for text in texts]


def make_id(now_ms: int) -> str:
    """One id, as `make_ids(1, ...)` would make it at three times the cost."""
    noise = int.from_bytes(os.urandom(_NOISE_BYTES), "big") >> _NOISE_EXCESS
    since = (now_ms or time.time_ns() // 1_000_000) & _TIME_MASK
    packed = (since << _RANDOM_BITS | noise).to_bytes(_BYTES, "big")
    return binascii.b2a_base64(packed, newline=False).translate(_TO_ORDERED).decode()


def make_ids(count: int, now_ms: int) -> list[str]:
    """Ids for `count` messages published at `now_ms` (0: this machine's clock has to do)."""
    prefix = _prefix(now_ms or time.time_ns() // 1_000_000)
    noise = base64.b64encode(os.urandom(-(-count * _RANDOM_BITS // 24) * 3))
    text = noise.translate(_TO_ORDERED).decode()
    size = LENGTH - _TIME_LENGTH
    return [prefix + text[at : at + size] for at in range(0, size * count, size)]


@lru_cache(maxsize=16)
def _prefix(milliseconds: int) -> str:
    packed = ((milliseconds & _TIME_MASK) << _RANDOM_BITS).to_bytes(_BYTES, "big")
    return base64.b64encode(packed).translate(_TO_ORDERED).decode()[:_TIME_LENGTH]


def born_ms(id_: str) -> int | None:
    """When an id was made, in milliseconds since the epoch; None if its shape is another one."""
    if len(id_) != LENGTH or "." in id_ or ":" in id_:
        return None
    # Eight characters are 48 bits, of which the first 42 are the time; a quarter of decoding all.
    packed = binascii.a2b_base64(id_[:8].encode().translate(_TO_STANDARD))
    return int.from_bytes(packed, "big") >> _LEFT_BITS


def born_at_end(tail: bytes) -> int | None:
    """The same of an id that was chosen, from the last nine bytes of its message (envelope.py)."""
    is_time = tail[:1] == _UINT64 and len(tail) == _TAIL_BYTES
    return int.from_bytes(tail[1:]) if is_time else None


def pack_ids(ids: Sequence[str]) -> bytes:
    """Ids that `make_ids` made in 12 bytes each, as the history keeps many; b"" of other ids."""
    joined = "".join(ids).encode()
    if len(joined) != LENGTH * len(ids) or joined.translate(None, _ORDERED):
        return b""
    return binascii.a2b_base64(joined.translate(_TO_STANDARD))


def spell_ids(packed: bytes) -> bytes:
    """What `pack_ids` made, with a blank between each id and the next."""
    text = binascii.b2a_base64(packed, newline=False).translate(_TO_ORDERED)
    return b" ".join([text[at : at + LENGTH] for at in range(0, len(text), LENGTH)])


def partition_of(key: str, partitions: int) -> int:
    """The partition of a message, from its id (or message group): the same in every client."""
    return 0 if partitions == 1 else zlib.crc32(key.encode()) % partitions


def make_producer() -> str:
    """A new name for a lane."""
    return base64.b64encode(os.urandom(9)).translate(_TO_ORDERED).decode()
