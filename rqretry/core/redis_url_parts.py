"""Reading the parts of a Redis URL: each function checks one part and refuses in one sentence.

No error shows the user name or the password. Where a part may be a piece of the password,
because the URL is so broken, it is not shown at all.
"""

import ipaddress
import re
from collections.abc import Callable
from typing import NoReturn
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from rqretry.core.errors import ConfigError, show

REDIS_PORT = 6379
SENTINEL_PORT = 26379
SCHEMES = (
    "redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster",
    "rediss+cluster",
)  # fmt: skip
_MAX_PORT = 65_535
_MAX_ADDRESSES = 64
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}):")
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_MAX_HOST = 253
_DIGITS = re.compile(r"[0-9]{1,9}")
_DECIMAL = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_SERVICE = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}

Option = str | float | bool
Address = tuple[str, int]


def refuse_url(message: str) -> NoReturn:
    """Raise ConfigError."""
    raise ConfigError(message)


def check_text(text: object) -> str:
    """A text without blanks and invisible characters."""
    if not isinstance(text, str):
        refuse_url(f"the Redis URL is {type(text).__name__}, not str")
    if not text:
        refuse_url("the Redis URL is empty: give one such as redis://localhost:6379/0")
    for position, character in enumerate(text):
        if not character.isprintable() or character == " ":
            refuse_url(
                f"the Redis URL holds {show(character)} at position {position}: remove it, or"
                " percent-encode it if it belongs to the password"
            )
    return text


def split_url(text: str) -> SplitResult:
    """The parts of a URL of a known scheme, which holds nothing in a place where it may not."""
    match = _SCHEME.match(text)
    scheme = match[1].lower() if match else ""
    if scheme not in SCHEMES or not text[len(scheme) :].startswith("://"):
        refuse_url(
            "the Redis URL must begin with redis://, rediss:// or unix://, or name Sentinels with"
            " redis+sentinel:// or a cluster with redis+cluster://"
        )
    parts = _split_or_none(text)
    if parts is None:
        refuse_url(
            "the Redis URL has a malformed host: write an IPv6 address as redis://[::1]:6379"
        )
    # Before anything else: a piece of the password may be in any part of such a URL.
    if "@" in parts.path + parts.query + parts.fragment:
        refuse_url(
            "the user name or the password in the Redis URL holds a reserved character:"
            " percent-encode it, / as %2F, # as %23, ? as %3F and @ as %40"
        )
    if "#" in text:
        refuse_url("the Redis URL holds '#': percent-encode it as %23")
    return parts


def _split_or_none(text: str) -> SplitResult | None:
    # The error of urlsplit may quote the password: nothing may be raised inside `except`.
    try:
        return urlsplit(text)
    except ValueError:
        return None


def read_user(parts: SplitResult) -> tuple[str | None, str | None]:
    """The user name and the password before the host."""
    if "+" in parts.scheme and "@" in parts.netloc.rpartition("@")[0]:
        refuse_url(
            "the Redis URL holds two '@' before the path: give user and password once, before the"
            " first host, and percent-encode @ as %40"
        )
    username = unquote(parts.username) if parts.username else None
    password = unquote(parts.password) if parts.password else None
    return username, password


def read_address(parts: SplitResult) -> Address:
    """The one host and port of a URL for one server."""
    return _read_address(parts, parts.netloc.rpartition("@")[2], REDIS_PORT)


def read_addresses(parts: SplitResult) -> tuple[Address, ...]:
    """The hosts and ports, divided by commas, of a URL for Sentinels or a cluster."""
    port = SENTINEL_PORT if parts.scheme.endswith("sentinel") else REDIS_PORT
    texts = parts.netloc.rpartition("@")[2].split(",")
    if len(texts) > _MAX_ADDRESSES:
        refuse_url(f"the Redis URL names {len(texts)} hosts: give at most {_MAX_ADDRESSES}")
    found = [_read_address(parts, text, port) for text in texts]
    for host, number in found:
        if found.count((host, number)) > 1:
            refuse_url(f"the Redis URL names {show(f'{host}:{number}')} twice: keep one")
    return tuple(found)


def _read_address(parts: SplitResult, address: str, default_port: int) -> Address:
    return _read_host(parts, address), _read_port(address, default_port)


def _read_host(parts: SplitResult, address: str) -> str:
    if address.startswith("["):
        return _check_ipv6(address[1:].partition("]")[0])
    host = address.partition(":")[0].lower()
    if not host:
        refuse_url(f"the Redis URL names no host: write {parts.scheme}://localhost")
    if not host.isascii():
        refuse_url(f"the host {show(host)} in the Redis URL is not ASCII: write it in punycode")
    labels = host.split(".")
    if len(host) > _MAX_HOST or not all(map(_LABEL.fullmatch, labels)):
        refuse_url(f"the host {show(host)} in the Redis URL is no host name: A-Z a-z 0-9 . _ -")
    return host


def _check_ipv6(host: str) -> str:
    try:
        return str(ipaddress.IPv6Address(host))
    except ValueError:
        refuse_url(f"the host [{show(host)[1:-1]}] in the Redis URL is no IPv6 address")


def _read_port(address: str, default: int) -> int:
    after_host = address.rpartition("]")[2] if "]" in address else address
    before, colon, port = after_host.partition(":")
    if "]" in address and before:
        refuse_url("the Redis URL has something between the IPv6 address and the port: remove it")
    if not colon:
        return default
    if not _DIGITS.fullmatch(port):
        # Not shown: in redis://user:secret without a host it is the password.
        refuse_url(f"the port in the Redis URL is no number: it must be 1 to {_MAX_PORT}")
    if not 1 <= int(port) <= _MAX_PORT:
        refuse_url(f"the port {port} in the Redis URL must be 1 to {_MAX_PORT}")
    return int(port)


def read_service(parts: SplitResult) -> tuple[str, int | None]:
    """The service and the database of /service[/db] in a URL for Sentinels."""
    service, slash, db = parts.path.removeprefix("/").partition("/")
    service = unquote(service)
    if not service:
        refuse_url(
            "the Redis URL names no service: add the name that the Sentinels watch, as in"
            " redis+sentinel://host:26379/mymaster"
        )
    if not _SERVICE.fullmatch(service):
        refuse_url(f"the service {show(service)} in the Redis URL is no name: A-Z a-z 0-9 . _ : -")
    return service, _read_db(db) if slash and db else None


def check_cluster_db(parts: SplitResult) -> None:
    """A cluster has database 0 only."""
    if parts.path not in ("", "/", "/0"):
        refuse_url(
            f"the database {show(parts.path[1:])} in the Redis URL is refused: a cluster has only"
            " database 0; keep systems apart with --namespace"
        )


def read_path_db(parts: SplitResult) -> int | None:
    """The database of the path; None if it names none."""
    if parts.path in ("", "/"):
        return None
    return int(_read_db(parts.path[1:]))


def read_socket_path(parts: SplitResult) -> str:
    """The socket file of a unix URL."""
    if parts.netloc.rpartition("@")[2]:
        refuse_url(
            "a unix Redis URL needs an absolute path, with three slashes: unix:///run/r.sock"
        )
    path = unquote(parts.path)
    if path in ("", "/") or path.endswith("/") or "\0" in path:
        refuse_url("a unix Redis URL needs the path of a socket file: unix:///run/redis.sock")
    return path


def read_options(parts: SplitResult) -> dict[str, Option]:
    """The query options, each checked."""
    options: dict[str, Option] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in options:
            refuse_url(f"the Redis URL gives {show(name)} twice: keep one")
        options[name] = _read_option(parts, name, value)
    return options


def _read_option(parts: SplitResult, name: str, value: str) -> Option:
    if name in ("password", "username"):
        both = " as well" if parts.username or parts.password else ""
        refuse_url(
            f"the Redis URL gives the {name} as an option{both}: write it once, before the"
            " host, as in redis://user:password@host"
        )
    if name == "ssl_cert_reqs":
        refuse_url("ssl_cert_reqs is refused: certificates are always checked; name ssl_ca_certs")
    read = _OPTIONS.get(name)
    if read is None:
        known = ", ".join(_OPTIONS)
        refuse_url(f"the Redis URL has the unknown option {show(name)}: known are {known}")
    if name.startswith("ssl_") and not parts.scheme.startswith("rediss"):
        secure = parts.scheme.replace("redis", "rediss") if "redis" in parts.scheme else "rediss"
        refuse_url(f"{name} needs TLS: begin the Redis URL with {secure}://")
    if name.startswith("sentinel_") and not parts.scheme.endswith("sentinel"):
        refuse_url(f"{name} is for Sentinels: begin the Redis URL with redis+sentinel://")
    if name == "db" and parts.scheme.endswith("cluster") and value != "0":
        refuse_url(f"the database {show(value)} in the Redis URL is refused: a cluster has only 0")
    return read(name, value)


def _read_seconds(name: str, value: str) -> float:
    seconds = float(value) if _DECIMAL.fullmatch(value) else 0.0
    if seconds <= 0:
        refuse_url(
            f"{name} {show(value)} in the Redis URL must be seconds above 0, such as 5 or 0.5"
        )
    return seconds


def _read_db(value: str) -> int:
    if not _DIGITS.fullmatch(value):
        refuse_url(f"the database {show(value)} in the Redis URL must be a whole number from 0")
    return int(value)


def _read_name(name: str, value: str) -> str:
    if not value or not value.isascii() or not value.isprintable() or " " in value:
        refuse_url(f"{name} {show(value)} in the Redis URL must be visible ASCII without blanks")
    return value


def _read_secret(name: str, value: str) -> str:
    if not value:
        refuse_url(f"{name} in the Redis URL is empty: leave it out, or give it a value")
    return value


def _read_file(name: str, value: str) -> str:
    if not value or not value.isprintable():
        refuse_url(f"{name} {show(value)} in the Redis URL must be the path of a file")
    return value


def _read_bool(name: str, value: str) -> bool:
    if value.lower() not in _BOOLEANS:
        refuse_url(f"{name} {show(value)} in the Redis URL must be true or false")
    return _BOOLEANS[value.lower()]


_OPTIONS: dict[str, Callable[[str, str], Option]] = {
    "socket_timeout": _read_seconds,
    "socket_connect_timeout": _read_seconds,
    "client_name": _read_name,
    "db": lambda _name, value: _read_db(value),
    "sentinel_username": _read_secret,
    "sentinel_password": _read_secret,
    "ssl_ca_certs": _read_file,
    "ssl_certfile": _read_file,
    "ssl_keyfile": _read_file,
    "ssl_check_hostname": _read_bool,
}
