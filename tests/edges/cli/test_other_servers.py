"""A port where something else answers than Redis: the error says so, and shows no control bytes."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import pytest

from rqretry import AsyncClient, Client, ConfigError, RqretryError
from tests.edges.cli.shell import Shell

EVIL = b"\x1b[31mred\x1b]0;title\x07 \xe2\x80\xae\xe2\x80\xa8"
NO_REDIS = "does not answer as Redis does: check host and port"
Answering = Callable[..., str]


@pytest.fixture
def answering() -> Iterator[Answering]:
    """A server that answers everything with the same bytes; its URL."""
    listening: list[socket.socket] = []

    def serve(reply: bytes, greeting: bytes = b"") -> str:
        server = socket.create_server(("127.0.0.1", 0))
        listening.append(server)
        threading.Thread(target=accept, args=(server, reply, greeting), daemon=True).start()
        return f"redis://127.0.0.1:{server.getsockname()[1]}"

    yield serve
    for server in listening:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def accept(server: socket.socket, reply: bytes, greeting: bytes) -> None:
    """Answer each connection, one after another, until the server is closed."""
    with suppress(OSError):
        while True:
            connection, _ = server.accept()
            with closing(connection), suppress(OSError):
                connection.sendall(greeting)
                while connection.recv(65536):
                    connection.sendall(reply)


@pytest.mark.parametrize(
    ("reply", "greeting", "shown"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", NO_REDIS),
        (b"x", b"SSH-2.0-OpenSSH_9.2\r\n", NO_REDIS),
        (b"\x15\x03\x01\x00\x02\x02\x16", b"", f"{NO_REDIS}, and begin the URL with rediss://"),
        (b":5\r\n" * 2, b"", f"{NO_REDIS}"),
        (b"$3\r\nabc\r\n" * 2, b"", "(it answered 'abc')"),
        (
            b"-ERR " + EVIL + b"\r\n-ERR\r\n",
            b"",
            r"(it answered '\x1b[31mred\x1b]0;title\x07 \u202",
        ),
    ],
)
def test_something_else_than_redis_is_called_that(
    answering: Answering, reply: bytes, greeting: bytes, shown: str
) -> None:
    error = Shell(answering(reply, greeting)).fails("status", status=1)
    assert shown in error
    assert error.isprintable()


async def test_an_error_of_the_server_is_escaped_for_programs_too(answering: Answering) -> None:
    errors: list[RqretryError] = []
    url = answering(b"-ERR " + EVIL + b"\r\n" + b"-ERR\r\n")
    with Client(url) as client, pytest.raises(ConfigError) as sync:
        client.publish("t", 1)
    async with AsyncClient(url) as client:
        with pytest.raises(ConfigError) as other:
            await client.publish("t", 1)
    errors += [sync.value, other.value]
    assert all(str(error).isprintable() for error in errors)
    assert all(error.__cause__ is not error for error in errors)


def test_an_error_inside_a_script_is_escaped(answering: Answering) -> None:
    info = b"$22\r\nredis_version:7.0.15\r\n\r\n*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n"
    url = answering(info + b"-ERR " + EVIL + b"\r\n")
    with Client(url) as client, pytest.raises(RqretryError) as raised:
        client.admin.topics()
    assert str(raised.value).isprintable()
