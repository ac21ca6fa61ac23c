"""Durability on request: where a message is stored, beyond memory, when `publish` returns.

"replica:2" is WAIT for two replicas, "disk" is WAITAOF for the primary's own append-only file. Both
follow the publish on its own connection (docs/guarantees.md R7). No I/O.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rqretry.core.errors import ConfigError, refuse, show

CONFIRM_SECONDS = 3.0
"""How long the server waits for the confirmation; then NotConfirmed is raised."""
MEMORY = "memory"
_MS = round(CONFIRM_SECONDS * 1000)
_REPLICAS = re.compile(r"replica:([1-9][0-9]?)")
_NUMBER = re.compile(r"\d+")


def check_durability(value: object) -> str:
    """The durability given to `publish`; "" for none.

    Args:
        value: None or "memory", "disk", or "replica:N" with N from 1 to 99.

    Raises:
        InvalidArgument: It is something else.
    """
    if value is None or value == MEMORY:
        return ""
    if not isinstance(value, str) or (value != "disk" and not _REPLICAS.fullmatch(value)):
        refuse("durability", value, 'must be "memory", "disk" or "replica:N", such as "replica:1"')
    return value


def confirmation(durability: str) -> tuple[str | int, ...]:
    """The request that waits for a durability; () for none."""
    if not durability:
        return ()
    if durability == "disk":
        return ("WAITAOF", 1, 0, _MS)
    return ("WAIT", _wanted(durability), _MS)


def doubt(durability: str, reply: Any) -> str:
    """Why the reply to `confirmation` does not confirm it; "" if it does."""
    if isinstance(reply, Exception):
        return f"the server refused: {show(str(reply))[1:-1]}"
    if durability == "disk":
        local = int(reply[0]) if isinstance(reply, Sequence) and reply else 0
        return "" if local >= 1 else "the append-only file was not synced in time"
    found, wanted = int(reply), _wanted(durability)
    if found >= wanted:
        return ""
    return f"{found} of {wanted} replicas had it after {CONFIRM_SECONDS:g} s"


def server_name(info: Mapping[str, str]) -> str:
    """Such as "Redis 7.0.15" or "Valkey 8.0.1", from a reply to INFO."""
    if "valkey_version" in info:  # its redis_version is that of the last Redis it is like
        return f"Valkey {info['valkey_version']}"
    return f"Redis {info.get('redis_version', '?')}"


def evicts(info: Mapping[str, str]) -> str:
    """What is wrong with a server that throws away what it has no room for; "" if it does not."""
    policy = info.get("maxmemory_policy", "?")
    if policy == "noeviction":
        return ""
    return f"throws messages away when it is full (maxmemory-policy {policy})"


def syncs_before_waitaof(server: str) -> bool:
    """Whether WAITAOF of this server waits for the disk.

    Redis 7.4.0 to 7.4.2 and Valkey 8.0 answer before the file is synced if appendfsync is
    everysec (redis/redis pull request 13793): what they confirm may be lost with the power.
    """
    version = _numbers(server)
    if server.startswith("Valkey"):
        return version[:2] != (8, 0)
    return not (7, 4, 0) <= version <= (7, 4, 2)


def check_server(request: Sequence[Any], server: str, address: str) -> None:
    """Before anything is sent: check that a server can confirm a publish.

    Args:
        request: What `confirmation` answered.
        server: Its `server_name`; "" if it is not a real server.
        address: Where it is, for the error.

    Raises:
        ConfigError: It cannot.
    """
    if request[0] != "WAITAOF":
        return
    instead = (
        "nothing was stored. With appendfsync always every answer means disk there, without a"
        ' durability, and "replica:1" works on every version'
    )
    if _numbers(server) < (7, 2):
        raise ConfigError(
            f'durability "disk" needs Redis 7.2 or newer (WAITAOF), and the server at {address} is'
            f" {server or 'not a real one'}; {instead}"
        )
    if not syncs_before_waitaof(server):
        raise ConfigError(
            f'durability "disk" cannot be trusted: {server} at {address} confirms before the file'
            f" is synced, which was mended in Redis 7.4.3 and Valkey 8.1; {instead}"
        )


def _numbers(server: str) -> tuple[int, ...]:
    return tuple(int(part) for part in _NUMBER.findall(server)[:3])


def _wanted(durability: str) -> int:
    return int(durability.partition(":")[2])
