"""The Redis URL: redis-py reads it, and what redis-py would guess or ignore is refused here.

It takes `redis://host/notint` as database 0, drops a newline inside a host name, ignores unknown
options and accepts a negative timeout. Here each of them is an error.

One server:  redis://[user:password@]host[:port][/db], rediss:// for TLS, unix:///path
Sentinels:   redis+sentinel://[user:password@]host[:port],host[:port]/service[/db]
A cluster:   redis+cluster://[user:password@]host[:port],host[:port]

The user and password are those of the Redis servers; Sentinels that want their own take
`?sentinel_username=` and `?sentinel_password=`. No error, `repr` or `str` shows any of them; where
a part may be a piece of the password, because the URL is so broken, it is not shown at all.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from ipaddress import IPv6Address
from typing import Any, Literal, NamedTuple, NoReturn
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from redis.connection import parse_url

from rqretry.core.errors import ConfigError, show

Deployment = Literal["single", "sentinel", "cluster"]
Option = str | float | bool
Address = tuple[str, int]

_PORT, _SENTINEL_PORT, _MAX_PORT = 6379, 26379, 65_535
_MAX_ADDRESSES = 64
_MAX_HOST = 253
_SCHEME = re.compile(r"(rediss?(?:\+sentinel|\+cluster)?|unix)://", re.IGNORECASE)
_ADDRESS = re.compile(r"(\[[^]]*\]|[^:]*)(.*?)(?::(.*))?")
_HOST = re.compile(r"(?:(?!-)[A-Za-z0-9_-]{1,63}(?<!-)(?:\.|$))+(?<!\.)")
_SERVICE = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_DIGITS = re.compile(r"[0-9]{1,9}")


class _Rule(NamedTuple):
    """What an option may be, and what its error asks for."""

    pattern: str
    must: str
    cast: Callable[[str], Option] = str


_SECONDS = _Rule(
    r"(?=.*[1-9])[0-9]{1,9}(\.[0-9]{1,9})?", "must be seconds above 0, such as 5 or 0.5", float
)
_FILE = _Rule(r".+", "must be the path of a file")
_SECRET = _Rule(r"(?s).+", "is empty: remove it, or give it a value")
_DB = _Rule(_DIGITS.pattern, "must be a whole number from 0", int)
_BOOLEAN = _Rule(
    r"(?i)true|yes|1|false|no|0",
    "must be true or false",
    lambda value: value.lower() in {"true", "yes", "1"},
)
OPTIONS = {
    "socket_timeout": _SECONDS,
    "socket_connect_timeout": _SECONDS,
    "client_name": _Rule(r"[!-~]+", "must be visible ASCII without blanks"),
    "db": _DB,
    "sentinel_username": _SECRET,
    "sentinel_password": _SECRET,
    "ssl_ca_certs": _FILE,
    "ssl_certfile": _FILE,
    "ssl_keyfile": _FILE,
    "ssl_check_hostname": _BOOLEAN,
}


def refuse(message: str) -> NoReturn:
    """Raise ConfigError."""
    raise ConfigError(message)


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """A checked Redis URL; make one with `parse`.

    Attributes:
        scheme: "redis", "rediss" (TLS), "unix", or one of the first two with "+sentinel" or
            "+cluster".
        host: The host name or address; "" for unix, the first one of several.
        port: The port; 0 for unix.
        path: The socket file for unix, else "".
        db: The database number.
        username: None without one.
        password: None without one.
        options: The query options, in the order given.
        hosts: All hosts and ports that the URL names; none for unix.
        service: The name that Sentinels know the primary by, else "".
        sentinel_username: What the Sentinels want; None without one.
        sentinel_password: None without one.
    """

    scheme: str
    host: str
    port: int
    path: str
    db: int
    username: str | None = field(repr=False)
    password: str | None = field(repr=False)
    options: tuple[tuple[str, Option], ...]
    hosts: tuple[Address, ...] = ()
    service: str = ""
    sentinel_username: str | None = field(default=None, repr=False)
    sentinel_password: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, text: object) -> "RedisUrl":
        """Read and check a URL without connecting.

        Known options: socket_timeout and socket_connect_timeout (seconds, for a reply and for
        connecting), client_name, db; with TLS ssl_ca_certs, ssl_certfile, ssl_keyfile,
        ssl_check_hostname; with Sentinels sentinel_username and sentinel_password.

        Raises:
            ConfigError: It is no URL, of an unknown kind, or one of its parts is missing,
                malformed or unknown.
        """
        parts = _split(_visible(text))
        base, _, several = parts.scheme.partition("+")
        user, _, located = parts.netloc.rpartition("@")
        if several and "@" in user:
            refuse(
                "the Redis URL holds two '@' before the path: give user and password once, before"
                " the first host, and percent-encode @ as %40"
            )
        addresses = _addresses(parts.scheme, located, several)
        service, path = _path(parts, several)
        options = _options(parts, several)
        if "db" in options and path.strip("/") and base != "unix":
            refuse("the Redis URL names the database twice: keep the path or ?db=, not both")
        # Without the options: releases of redis-py differ in how often they decode those.
        known = [
            _read(f"{base}://{user}{'@' if user else ''}{address}{path}") for address in addresses
        ]
        port = _SENTINEL_PORT if several == "sentinel" else _PORT
        hosts = [(str(k["host"]), int(k.get("port", port))) for k in known if "host" in k]
        for host, number in hosts:
            if hosts.count((host, number)) > 1:
                refuse(f"the Redis URL names {show(f'{host}:{number}')} twice: keep one")
        db = int(options.pop("db", known[0].get("db", 0)))
        sentinel = [options.pop(f"sentinel_{name}", None) for name in ("username", "password")]
        return cls(
            parts.scheme, *(hosts[0] if hosts else ("", 0)), known[0].get("path", ""), db,
            known[0].get("username"), known[0].get("password"), tuple(options.items()),
            tuple(hosts), service, *sentinel,
        )  # fmt: skip

    @property
    def deployment(self) -> Deployment:
        """Whether it names one server, Sentinels, or a cluster."""
        last = self.scheme.partition("+")[2]
        return "sentinel" if last == "sentinel" else "cluster" if last else "single"

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted; certificates are always checked."""
        return self.scheme.startswith("rediss")

    @property
    def address(self) -> str:
        """Where the server is: "host:port", several of them, or the path of the socket."""
        if self.scheme == "unix":
            return self.path
        return ",".join(_joined(host, port) for host, port in self.hosts)

    @property
    def safe(self) -> str:
        """The URL for messages, without the user name, the password and the options."""
        # A user name alone is often a password in the wrong place, so it is hidden too.
        user = "***@" if self.username or self.password else ""
        if self.scheme == "unix":
            return f"unix://{user}{self.path}" + (f"?db={self.db}" if self.db else "")
        if self.deployment == "cluster":
            return f"{self.scheme}://{user}{self.address}"
        service = f"{self.service}/" if self.service else ""
        return f"{self.scheme}://{user}{self.address}/{service}{self.db}"

    def __str__(self) -> str:
        return self.safe

    def at(self, host: str, port: int) -> "RedisUrl":
        """The URL of one server behind this one, with its user, password and options."""
        scheme, hosts = self.scheme.partition("+")[0], ((host, port),)
        return replace(
            self, scheme=scheme, host=host, port=port, hosts=hosts, service="",
            sentinel_username=None, sentinel_password=None,
        )  # fmt: skip

    def seeds(self) -> "Sequence[RedisUrl]":
        """One URL for each host that is named: the Sentinels, or the nodes to begin with."""
        seeds = [self.at(host, port) for host, port in self.hosts]
        if self.deployment != "sentinel":
            return seeds
        user, password = self.sentinel_username, self.sentinel_password
        return [replace(seed, db=0, username=user, password=password) for seed in seeds]

    def option(self, name: str, default: float) -> float:
        """An option that is a number of seconds."""
        return float(dict(self.options).get(name, default))

    def redis_kwargs(self) -> dict[str, object]:
        """Keywords for the redis-py connection class of the scheme, sync or asyncio.

        That is `Connection` for redis, `SSLConnection` for rediss and
        `UnixDomainSocketConnection` for unix. What is not set is absent.
        """
        kwargs: dict[str, object] = {"host": self.host, "port": self.port}
        if self.scheme == "unix":
            kwargs = {"path": self.path}
        if self.tls:
            kwargs |= {"ssl_cert_reqs": "required", "ssl_check_hostname": True}
        user = {"username": self.username, "password": self.password}
        kwargs |= {name: value for name, value in user.items() if value}
        return {"db": self.db} | kwargs | dict(self.options)


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _visible(text: object) -> str:
    """A text without blanks and invisible characters."""
    if not isinstance(text, str):
        refuse(f"the Redis URL is {type(text).__name__}, not str")
    if not text:
        refuse("the Redis URL is empty: give one such as redis://localhost:6379/0")
    for position, character in enumerate(text):
        if not character.isprintable() or character == " ":
            refuse(
                f"the Redis URL holds {show(character)} at position {position}: remove it, or"
                " percent-encode it if it belongs to the password"
            )
    return text


def _split(text: str) -> SplitResult:
    """The parts of a URL of a known scheme, which holds nothing where it may not."""
    if not _SCHEME.match(text):
        refuse(
            "the Redis URL must begin with redis://, rediss:// or unix://, or name Sentinels with"
            " redis+sentinel:// or a cluster with redis+cluster://"
        )
    parts: SplitResult | None = _or_none(urlsplit, text)
    if parts is None:
        refuse("the Redis URL has a malformed host: write an IPv6 address as redis://[::1]:6379")
    # Before anything else: a piece of the password may be in any part of such a URL.
    if "@" in parts.path + parts.query + parts.fragment:
        refuse(
            "the user name or the password in the Redis URL holds a reserved character:"
            " percent-encode it, / as %2F, # as %23, ? as %3F and @ as %40"
        )
    if "#" in text:
        refuse("the Redis URL holds '#': percent-encode it as %23")
    return parts


def _read(url: str) -> dict[str, Any]:
    """What redis-py finds in the URL of one server."""
    known: dict[str, Any] | None = _or_none(parse_url, url)
    if known is None:
        refuse("the Redis URL cannot be read: write it as redis://user:password@host:6379/0")
    return known


def _or_none(read: Callable[[str], Any], url: str) -> Any:
    # The error may quote the password: nothing may be raised inside `except`.
    try:
        return read(url)
    except ValueError:
        return None


def _path(parts: SplitResult, several: str) -> tuple[str, str]:
    """The service behind Sentinels, and the path as redis-py takes it: the database or a file."""
    service, path = "", parts.path
    if parts.scheme == "unix":
        _check_socket(parts.netloc.rpartition("@")[2], unquote(path))
        return "", path
    if several == "cluster" and path not in ("", "/", "/0"):
        refuse(
            f"the database {show(path[1:])} in the Redis URL is refused: a cluster has only"
            " database 0; keep systems apart with --namespace"
        )
    if several == "sentinel":
        service, _, db = path.removeprefix("/").partition("/")
        service, path = unquote(service), f"/{db}"
        if not service:
            refuse(
                "the Redis URL names no service: add the name that the Sentinels watch, as in"
                " redis+sentinel://host:26379/mymaster"
            )
        if not _SERVICE.fullmatch(service):
            refuse(
                f"the service {show(service)} in the Redis URL is not a name: A-Z a-z 0-9 . _ : -"
            )
    if path not in ("", "/"):
        _check("the database", path[1:], _DB)
    return service, path


def _check_socket(host: str, path: str) -> None:
    if host:
        refuse("a unix Redis URL needs an absolute path, with three slashes: unix:///run/r.sock")
    if not path or path.endswith("/") or "\0" in path:
        refuse("a unix Redis URL needs the path of a socket file: unix:///run/redis.sock")


def _addresses(scheme: str, located: str, several: str) -> Sequence[str]:
    """The texts of host and port, checked; one empty one for a socket file."""
    if scheme == "unix":
        return [""]
    texts = located.split(",") if several else [located]
    if len(texts) > _MAX_ADDRESSES:
        refuse(f"the Redis URL names {len(texts)} hosts: give at most {_MAX_ADDRESSES}")
    for text in texts:
        host, between, port = _ADDRESS.fullmatch(text).groups()  # type: ignore[union-attr] # any text
        _check_host(scheme, host)
        if between:
            refuse("the Redis URL has something between the IPv6 address and the port: remove it")
        if port is not None and not _DIGITS.fullmatch(port):
            # Not shown: in redis://user:secret without a host it is the password.
            refuse(f"the port in the Redis URL is not a number: it must be 1 to {_MAX_PORT}")
        if port is not None and not 1 <= int(port) <= _MAX_PORT:
            refuse(f"the port {port} in the Redis URL must be 1 to {_MAX_PORT}")
    return texts


def _check_host(scheme: str, host: str) -> None:
    if not host:
        refuse(f"the Redis URL names no host: write {scheme}://localhost")
    if not host.isascii():
        refuse(f"the host {show(host)} in the Redis URL is not ASCII: write it in punycode")
    if host.startswith("["):
        if _or_none(IPv6Address, host[1:-1]) is None:
            refuse(f"the host {show(host)[1:-1]} in the Redis URL is no IPv6 address")
    elif len(host) > _MAX_HOST or not _HOST.fullmatch(host):
        refuse(f"the host {show(host)} in the Redis URL is not a host name: A-Z a-z 0-9 . _ -")


def _options(parts: SplitResult, several: str) -> dict[str, Any]:
    """The query options, each checked."""
    options: dict[str, Any] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in options:
            refuse(f"the Redis URL gives {show(name)} twice: keep one")
        rule = _rule(parts, name, several)
        if name == "db" and several == "cluster" and value != "0":
            refuse(f"the database {show(value)} in the Redis URL is refused: a cluster has only 0")
        _check("the database" if name == "db" else name, value, rule)
        options[name] = rule.cast(value)
    return options


def _rule(parts: SplitResult, name: str, several: str) -> _Rule:
    if name in ("password", "username"):
        both = " as well" if parts.username or parts.password else ""
        refuse(
            f"the Redis URL gives the {name} as an option{both}: write it once, before the"
            " host, as in redis://user:password@host"
        )
    if name == "ssl_cert_reqs":
        refuse("ssl_cert_reqs is refused: certificates are always checked; name ssl_ca_certs")
    if name not in OPTIONS:
        # Not shown: behind a '?' that was not percent-encoded it is a piece of the password.
        near = get_close_matches(name, OPTIONS, 1)
        meant = f", did you mean {near[0]}" if near else ""
        refuse(f"the Redis URL has an unknown option{meant}: known are {', '.join(OPTIONS)}")
    if name.startswith("ssl_") and not parts.scheme.startswith("rediss"):
        secure = "rediss" + parts.scheme.removeprefix("redis").removeprefix("unix")
        refuse(f"{name} needs TLS: begin the Redis URL with {secure}://")
    if name.startswith("sentinel_") and several != "sentinel":
        refuse(f"{name} is for Sentinels: begin the Redis URL with redis+sentinel://")
    return OPTIONS[name]


def _check(what: str, value: str, rule: _Rule) -> None:
    if re.fullmatch(rule.pattern, value) and (rule is not _FILE or value.isprintable()):
        return
    shown = "" if rule is _SECRET else f"{show(value)} "
    refuse(f"{what} {shown}in the Redis URL {rule.must}")
