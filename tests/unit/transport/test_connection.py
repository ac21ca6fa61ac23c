"""Requests as bytes: no number reaches hiredis where a signal handler may raise."""

from typing import Any

import pytest

from rqretry.transport import connection
from rqretry.transport.sync_connection import SyncConnection

REQUEST = ("EVALSHA", b"\x00\xff", 3, "ключ", -17, 2.5, 10**18, "")


class Raw:
    """A connection of redis-py that keeps what it is to send."""

    def __init__(self) -> None:
        self.sent = b""

    def send_packed_command(self, packed: list[bytes], *, check_health: bool) -> None:
        assert not check_health
        self.sent = b"".join(packed)


def test_what_a_sync_client_packs_is_text_and_the_same_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kinds: set[type] = set()

    def pack(arguments: tuple[Any, ...]) -> bytes:
        kinds.update(map(type, arguments))
        return connection.pack_slowly(arguments)

    monkeypatch.setattr(connection, "pack_one", pack)
    raw: Any = Raw()
    node: Any = None
    SyncConnection(node, raw).send([REQUEST])
    assert raw.sent == connection.pack_slowly(REQUEST)
    assert kinds == {str, bytes}
