"""Connections of redis-py, sync and async, with everything that repeats or guesses switched off."""

import re
import ssl
from asyncio import AbstractEventLoop
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import redis.asyncio.connection as aio
import redis.connection as sync
from redis._parsers.base import BaseParser
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import InvalidResponse
from redis.retry import Retry

from rqretry.core.errors import ConfigError, show
from rqretry.core.redis_url import RedisUrl

INCOMPLETE = object()
"""What the parser of replies answers before a reply is there as a whole."""
_make_reader: Callable[..., Any] | None
pack_one: Callable[[tuple[Any, ...]], bytes]
"""A request as bytes to write."""
_PACKER = aio.Connection()
_CERTIFICATE = re.compile(rb"-----BEGIN [A-Z0-9 ]*CERTIFICATE-----")
_PEM = {
    "ssl_ca_certs": _CERTIFICATE,
    "ssl_certfile": _CERTIFICATE,
    "ssl_keyfile": re.compile(rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----"),
}
_NUMBERS = frozenset({int, float})


def pack_slowly(arguments: tuple[Any, ...]) -> bytes:
    """What `pack_one` is without hiredis."""
    return b"".join(_PACKER.pack_command(*arguments))


try:
    _hiredis = import_module("hiredis")
except ImportError:  # the extra [fast] is not installed: use redis-py's own packer
    pack_one, _make_reader = pack_slowly, None
else:
    pack_one, _make_reader = _hiredis.pack_command, _hiredis.Reader


def pack_safely(arguments: tuple[Any, ...]) -> bytes:
    """`pack_one` for where a signal handler may raise.

    hiredis 3.5.0 ends the process where one does so, as for Ctrl-C, while it spells a number.
    """
    return pack_one(tuple([str(one) if type(one) in _NUMBERS else one for one in arguments]))


def reply_reader() -> Any:
    """A parser of replies; None if there is only redis-py's own, which reads from its streams."""
    return _make_reader and _make_reader(
        protocolError=InvalidResponse,
        replyError=BaseParser.parse_error,
        notEnoughData=INCOMPLETE,
    )


def async_connection(url: RedisUrl, connect_seconds: float) -> aio.AbstractConnection:
    """A connection, not yet open, that sends each request exactly once.

    Raises:
        ConfigError: A file that the URL names is not there, or is no certificate or key.
    """
    classes = {"unix": aio.UnixDomainSocketConnection, "rediss": aio.SSLConnection}
    connection_class: Any = classes.get(url.scheme, aio.Connection)
    return connection_class(**_settings(url, connect_seconds), retry=AsyncRetry(NoBackoff(), 0))  # type: ignore[no-any-return]


def sync_connection(
    url: RedisUrl, connect_seconds: float, reply_seconds: float
) -> sync.AbstractConnection:
    """The same for code without asyncio; the greeting of redis-py has a time-out too."""
    classes = {"unix": sync.UnixDomainSocketConnection, "rediss": _SyncTls}
    connection_class: Any = classes.get(url.scheme, sync.Connection)
    settings = {**_settings(url, connect_seconds), "socket_timeout": reply_seconds}
    return connection_class(**settings, retry=Retry(NoBackoff(), 0))  # type: ignore[no-any-return]


class _SyncTls(sync.SSLConnection):
    """Its handshake is a part of connecting: a server without TLS never answers one."""

    def _connect(self) -> Any:
        patience = self.socket_timeout
        self.socket_timeout = self.socket_connect_timeout
        try:
            connected = super()._connect()  # type: ignore[no-untyped-call]
        finally:
            self.socket_timeout = patience
        connected.settimeout(patience)
        return connected


def abandon(connection: aio.AbstractConnection, loop: AbstractEventLoop) -> None:
    """Close a connection of another event loop, where nothing can be awaited any more."""
    writer = connection._writer  # noqa: SLF001 - redis-py can only close in its own loop
    if writer is None:
        return
    connection._reader = connection._writer = None  # noqa: SLF001 - it is not to be used again
    if not loop.is_closed():
        loop.call_soon_threadsafe(writer.close)
        return
    with suppress(RuntimeError):  # its loop is closed
        writer.close()
    # A transport closes its socket in a callback of its loop; this is that callback.
    closed: Callable[[None], None] | None = getattr(writer.transport, "_call_connection_lost", None)
    if closed is not None:
        closed(None)


def read_info(reply: bytes) -> dict[str, str]:
    """The fields of an INFO reply."""
    lines = (line.partition(":") for line in reply.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


def _settings(url: RedisUrl, connect_seconds: float) -> dict[str, Any]:
    settings = dict(url.redis_kwargs())
    for name, pem in _PEM.items():
        if settings.get(name) is not None:
            _check_pem(name, Path(str(settings[name])), pem)
    settings["protocol"] = 2
    settings["driver_info"] = None
    settings.setdefault("socket_connect_timeout", connect_seconds)
    # Reads are bounded by the store, per request: a blocking one may take longer than others.
    settings["socket_timeout"] = None
    if url.tls:
        settings["ssl_min_version"] = ssl.TLSVersion.TLSv1_2
    return settings


def _check_pem(name: str, file: Path, pem: re.Pattern[bytes]) -> None:
    named = f"{name} in the Redis URL names {show(str(file))}"
    if not file.is_file():
        raise ConfigError(f"{named}: there is no such file")
    try:
        found = pem.search(file.read_bytes())
    except OSError as error:
        raise ConfigError(f"{named}: {error.strerror or error}") from error
    if not found:
        what = "private key" if name == "ssl_keyfile" else "certificate"
        raise ConfigError(f"{named}: it holds no {what} in PEM format")
