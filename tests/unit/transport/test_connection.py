"""Requests as bytes: no number reaches hiredis where a signal handler may raise."""

import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from rqretry import ConfigError
from rqretry.core.redis_url import RedisUrl
from rqretry.protocol.scripts import ScriptLibrary
from rqretry.transport import connection
from rqretry.transport.node import Node
from rqretry.transport.replies import TryAgain
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


@pytest.mark.parametrize("name", ["ssl_ca_certs", "ssl_certfile", "ssl_keyfile"])
def test_a_file_that_is_no_certificate_is_named_and_not_the_server(
    tmp_path: Path, name: str
) -> None:
    file = tmp_path / "passwd"
    file.write_text("root:x:0:0")
    url = RedisUrl.parse(f"rediss://localhost?{name}={file}")
    with pytest.raises(ConfigError, match=f"^{name} in the Redis URL names '{file}': it holds no "):
        connection.sync_connection(url, 1.0, 1.0)
    with pytest.raises(ConfigError, match=r"in PEM format$"):
        connection.async_connection(url, 1.0)


@pytest.mark.skipif(connection.reply_reader() is None, reason="redis-py reads its own replies")
@pytest.mark.parametrize("part", [b"x", b"x" * 65_536])
def test_a_reply_that_comes_in_drips_has_the_time_of_one(part: bytes) -> None:
    ours, theirs = socket.socketpair()
    done = threading.Event()

    def drip() -> None:
        while not done.wait(0.02):
            theirs.send(part)

    class Open(Raw):
        socket_timeout = 0.2
        _sock = ours

        def connect(self) -> None:
            ours.settimeout(self.socket_timeout)

    raw: Any = Open()
    ours.setblocking(True)
    held = SyncConnection(Node(RedisUrl.parse("redis://localhost"), ScriptLibrary()), raw)
    held.open()
    theirs.send(b"+")
    thread = threading.Thread(target=drip)
    thread.start()
    started = time.monotonic()
    try:
        with pytest.raises(TryAgain, match="did not answer in time"):
            held.receive(1)
        with pytest.raises(TryAgain, match="did not answer in time"):
            held.receive(1, 0.1)
        assert time.monotonic() - started < 2
    finally:
        done.set()
        thread.join()
        ours.close()
        theirs.close()
