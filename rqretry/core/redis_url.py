"""The Redis URL: read strictly, because redis-py accepts what it does not understand.

Its parser takes `redis://host/notint` as database 0, drops a newline inside a host name,
ignores unknown options and accepts a negative timeout. Here each of them is an error.

One server:  redis://[user:password@]host[:port][/db], rediss:// for TLS, unix:///path
Sentinels:   redis+sentinel://[user:password@]host[:port],host[:port]/service[/db]
A cluster:   redis+cluster://[user:password@]host[:port],host[:port]

The user and password are those of the Redis servers; Sentinels that want their own take
`?sentinel_username=` and `?sentinel_password=`. No error, `repr` or `str` shows any of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from rqretry.core.redis_url_parts import (
    Address,
    Option,
    check_cluster_db,
    check_text,
    read_address,
    read_addresses,
    read_options,
    read_path_db,
    read_service,
    read_socket_path,
    read_user,
    refuse_url,
    split_url,
)

Deployment = Literal["single", "sentinel", "cluster"]


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
        parts = split_url(check_text(text))
        path, service, hosts = "", "", ()  # type: tuple[str, str, tuple[Address, ...]]
        db: int | None = None
        if parts.scheme == "unix":
            path = read_socket_path(parts)
        elif parts.scheme.endswith("sentinel"):
            hosts, (service, db) = read_addresses(parts), read_service(parts)
        elif parts.scheme.endswith("cluster"):
            hosts = read_addresses(parts)
            check_cluster_db(parts)
        else:
            hosts, db = (read_address(parts),), read_path_db(parts)
        options = read_options(parts)
        query_db = options.pop("db", None)
        if db is not None and query_db is not None:
            refuse_url("the Redis URL names the database twice: keep the path or ?db=, not both")
        username, password = read_user(parts)
        number = db if db is not None else int(query_db or 0)
        sentinel = [options.pop(f"sentinel_{name}", None) for name in ("username", "password")]
        host, port = hosts[0] if hosts else ("", 0)
        return cls(
            parts.scheme, host, port, path, number, username, password, tuple(options.items()),
            hosts, service, *(None if value is None else str(value) for value in sentinel),
        )  # fmt: skip

    @property
    def deployment(self) -> Deployment:
        """Whether it names one server, Sentinels, or a cluster."""
        last = self.scheme.rpartition("+")[2]
        return "sentinel" if last == "sentinel" else "cluster" if last == "cluster" else "single"

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted; certificates are always checked."""
        return self.scheme.startswith("rediss")

    @property
    def address(self) -> str:
        """Where the server is: "host:port", several of them, or the path of the socket."""
        if self.scheme == "unix":
            return self.path
        return ",".join(_spelled(host, port) for host, port in self.hosts)

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
        return replace(
            self,
            scheme="rediss" if self.tls else "redis",
            host=host,
            port=port,
            hosts=((host, port),),
            service="",
            sentinel_username=None,
            sentinel_password=None,
        )

    def seeds(self) -> "Sequence[RedisUrl]":
        """One URL for each host that is named: the Sentinels, or the nodes to begin with."""
        if self.deployment != "sentinel":
            return [self.at(host, port) for host, port in self.hosts]
        return [
            replace(
                self.at(host, port),
                db=0,
                username=self.sentinel_username,
                password=self.sentinel_password,
            )
            for host, port in self.hosts
        ]

    def option(self, name: str, default: float) -> float:
        """An option that is a number of seconds."""
        return float(dict(self.options).get(name, default))

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
        if self.tls:
            kwargs |= {"ssl_cert_reqs": "required", "ssl_check_hostname": True}
        if self.username:
            kwargs["username"] = self.username
        if self.password:
            kwargs["password"] = self.password
        return kwargs | dict(self.options)


def _spelled(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
