"""The Redis URL: read strictly, because redis-py accepts what it does not understand.

Its parser takes `redis://host/notint` as database 0, drops a newline inside a host name,
ignores unknown options and accepts a negative timeout. Here each of them is an error.

No error, `repr` or `str` shows the user name or the password. Where the URL is so broken
that a part may be a piece of the password, the error does not show that part at all.
"""

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from rqretry.errors import ConfigError, show

DEFAULT_PORT = 6379
_MAX_PORT = 65_535
_SCHEMES = ("redis", "rediss", "unix")
_LATER_SCHEMES = ("redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}):")
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_MAX_HOST = 253
_DIGITS = re.compile(r"[0-9]{1,9}")
_DECIMAL = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}

Option = str | float | bool


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """A checked Redis URL; make one with `parse`.

    Attributes:
        scheme: "redis", "rediss" (TLS) or "unix".
        host: The host name or address; "" for unix.
        port: The port; 0 for unix.
        path: The socket file for unix, else "".
        db: The database number.
        username: None without one.
        password: None without one.
        options: The query options, in the order given.
    """

    scheme: str
    host: str
    port: int
    path: str
    db: int
    username: str | None = field(repr=False)
    password: str | None = field(repr=False)
    options: tuple[tuple[str, Option], ...]

    @classmethod
    def parse(cls, text: object) -> "RedisUrl":
        """Read and check a URL without connecting.

        Known options: socket_timeout and socket_connect_timeout (seconds), client_name,
        db, and with rediss ssl_ca_certs, ssl_certfile, ssl_keyfile, ssl_check_hostname.

        Raises:
            ConfigError: It is no URL, of an unknown or not yet supported kind, or one of
                its parts is missing, malformed or unknown.
        """
        parts = _split(_check_text(text))
        if parts.scheme == "unix":
            host, port, path, db = "", 0, _read_socket_path(parts), None
        else:
            host, port = _read_host(parts), _read_port(parts)
            path, db = "", _read_path_db(parts)
        options = _read_options(parts)
        query_db = options.pop("db", None)
        if db is not None and query_db is not None:
            _refuse("the Redis URL names the database twice: keep the path or ?db=, not both")
        username, password = _read_user(parts)
        number = db if db is not None else int(query_db or 0)
        given = tuple(options.items())
        return cls(parts.scheme, host, port, path, number, username, password, given)

    @property
    def place(self) -> str:
        """Where the server is: "host:port" or the path of the socket."""
        if self.scheme == "unix":
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def safe(self) -> str:
        """The URL for messages, without the user name, the password and the options."""
        # A user name alone is often a password in the wrong place, so it is hidden too.
        user = "***@" if self.username or self.password else ""
        if self.scheme == "unix":
            return f"unix://{user}{self.path}" + (f"?db={self.db}" if self.db else "")
        return f"{self.scheme}://{user}{self.place}/{self.db}"

    def __str__(self) -> str:
        return self.safe

    def redis_kwargs(self) -> dict[str, object]:
        """Keywords for the redis-py connection class of the scheme, sync or asyncio.

        That is `Connection` for redis, `SSLConnection` for rediss and
        `UnixDomainSocketConnection` for unix. What is not set is absent.
        """
        kwargs: dict[str, object] = {"db": self.db}
        if self.scheme == "unix":
            kwargs["path"] = self.path
        else:
            kwargs |= {"host": self.host, "port": self.port}
        if self.scheme == "rediss":
            kwargs |= {"ssl_cert_reqs": "required", "ssl_check_hostname": True}
        if self.username:
            kwargs["username"] = self.username
        if self.password:
            kwargs["password"] = self.password
        return kwargs | dict(self.options)


def _refuse(message: str) -> NoReturn:
    raise ConfigError(message)


def _check_text(text: object) -> str:
    if not isinstance(text, str):
        _refuse(f"the Redis URL is {type(text).__name__}, not str")
    if not text:
        _refuse("the Redis URL is empty: give one such as redis://localhost:6379/0")
    for position, character in enumerate(text):
        if not character.isprintable() or character == " ":
            _refuse(
                f"the Redis URL holds {show(character)} at position {position}: remove it, or"
                " percent-encode it if it belongs to the password"
            )
    return text


def _split(text: str) -> SplitResult:
    match = _SCHEME.match(text)
    scheme = match[1].lower() if match else ""
    if scheme in _LATER_SCHEMES:
        _refuse(
            f"{scheme}:// is not supported by this version of rqretry yet: give the address of"
            " one server as redis:// or rediss://"
        )
    if scheme not in _SCHEMES or not text[len(scheme) :].startswith("://"):
        _refuse("the Redis URL must begin with redis://, rediss:// or unix://")
    parts = _split_or_none(text)
    if parts is None:
        _refuse("the Redis URL has a malformed host: write an IPv6 address as redis://[::1]:6379")
    # Before anything else: a piece of the password may be in any part of such a URL.
    if "@" in parts.path + parts.query + parts.fragment:
        _refuse(
            "the user name or the password in the Redis URL holds a reserved character:"
            " percent-encode it, / as %2F, # as %23, ? as %3F and @ as %40"
        )
    if "#" in text:
        _refuse("the Redis URL holds '#': percent-encode it as %23")
    return parts


def _split_or_none(text: str) -> SplitResult | None:
    # The error of urlsplit may quote the password: nothing may be raised inside `except`.
    try:
        return urlsplit(text)
    except ValueError:
        return None


def _read_user(parts: SplitResult) -> tuple[str | None, str | None]:
    username = unquote(parts.username) if parts.username else None
    password = unquote(parts.password) if parts.password else None
    return username, password


def _read_host(parts: SplitResult) -> str:
    address = parts.netloc.rpartition("@")[2]
    host = parts.hostname or ""
    if not host:
        _refuse(f"the Redis URL names no host: write {parts.scheme}://localhost:6379/0")
    if address.startswith("["):
        return _check_ipv6(host)
    if not host.isascii():
        _refuse(f"the host {show(host)} in the Redis URL is not ASCII: write it in punycode")
    labels = host.split(".")
    if len(host) > _MAX_HOST or not all(map(_LABEL.fullmatch, labels)):
        _refuse(f"the host {show(host)} in the Redis URL is no host name: A-Z a-z 0-9 . _ -")
    return host


def _check_ipv6(host: str) -> str:
    try:
        return str(ipaddress.IPv6Address(host))
    except ValueError:
        _refuse(f"the host [{show(host)[1:-1]}] in the Redis URL is no IPv6 address")


def _read_port(parts: SplitResult) -> int:
    address = parts.netloc.rpartition("@")[2]
    after_host = address.rpartition("]")[2] if "]" in address else address
    before, colon, port = after_host.partition(":")
    if "]" in address and before:
        _refuse("the Redis URL has something between the IPv6 address and the port: remove it")
    if not colon:
        return DEFAULT_PORT
    if not _DIGITS.fullmatch(port):
        # Not shown: in redis://user:secret without a host it is the password.
        _refuse(f"the port in the Redis URL is no number: it must be 1 to {_MAX_PORT}")
    if not 1 <= int(port) <= _MAX_PORT:
        _refuse(f"the port {port} in the Redis URL must be 1 to {_MAX_PORT}")
    return int(port)


def _read_path_db(parts: SplitResult) -> int | None:
    if parts.path in ("", "/"):
        return None
    return int(_read_db(parts.path[1:]))


def _read_socket_path(parts: SplitResult) -> str:
    if parts.netloc.rpartition("@")[2]:
        _refuse("a unix Redis URL needs an absolute path, with three slashes: unix:///run/r.sock")
    path = unquote(parts.path)
    if path in ("", "/") or path.endswith("/") or "\0" in path:
        _refuse("a unix Redis URL needs the path of a socket file: unix:///run/redis.sock")
    return path


def _read_options(parts: SplitResult) -> dict[str, Option]:
    options: dict[str, Option] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in options:
            _refuse(f"the Redis URL gives {show(name)} twice: keep one")
        options[name] = _read_option(parts, name, value)
    return options


def _read_option(parts: SplitResult, name: str, value: str) -> Option:
    if name in ("password", "username"):
        both = " as well" if parts.username or parts.password else ""
        _refuse(
            f"the Redis URL gives the {name} as an option{both}: write it once, before the"
            " host, as in redis://user:password@host"
        )
    if name == "ssl_cert_reqs":
        _refuse("ssl_cert_reqs is refused: certificates are always checked; name ssl_ca_certs")
    read = _OPTIONS.get(name)
    if read is None:
        known = ", ".join(_OPTIONS)
        _refuse(f"the Redis URL has the unknown option {show(name)}: known are {known}")
    if name.startswith("ssl_") and parts.scheme != "rediss":
        _refuse(f"{name} needs TLS: begin the Redis URL with rediss://")
    return read(name, value)


def _read_seconds(name: str, value: str) -> float:
    seconds = float(value) if _DECIMAL.fullmatch(value) else 0.0
    if seconds <= 0:
        _refuse(f"{name} {show(value)} in the Redis URL must be seconds above 0, such as 5 or 0.5")
    return seconds


def _read_db(value: str) -> int:
    if not _DIGITS.fullmatch(value):
        _refuse(f"the database {show(value)} in the Redis URL must be a whole number from 0")
    return int(value)


def _read_name(name: str, value: str) -> str:
    if not value or not value.isascii() or not value.isprintable() or " " in value:
        _refuse(f"{name} {show(value)} in the Redis URL must be visible ASCII without blanks")
    return value


def _read_file(name: str, value: str) -> str:
    if not value or not value.isprintable():
        _refuse(f"{name} {show(value)} in the Redis URL must be the path of a file")
    return value


def _read_bool(name: str, value: str) -> bool:
    if value.lower() not in _BOOLEANS:
        _refuse(f"{name} {show(value)} in the Redis URL must be true or false")
    return _BOOLEANS[value.lower()]


_OPTIONS: dict[str, Callable[[str, str], Option]] = {
    "socket_timeout": _read_seconds,
    "socket_connect_timeout": _read_seconds,
    "client_name": _read_name,
    "db": lambda _name, value: _read_db(value),
    "ssl_ca_certs": _read_file,
    "ssl_certfile": _read_file,
    "ssl_keyfile": _read_file,
    "ssl_check_hostname": _read_bool,
}
