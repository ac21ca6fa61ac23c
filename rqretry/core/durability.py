"""Durability on request: where a message is stored, beyond memory, when `publish` returns.

"replica:2" is WAIT for two replicas, "disk" is WAITAOF for the primary's own append-only file. Both
follow the publish on its own connection (docs/guarantees.md R7). No I/O.
"""

import re
from collections.abc import Sequence
from typing import Any

from rqretry.core.errors import ConfigError, refuse

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
    if value is None or value in ("", MEMORY):
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
        return f"the server refused: {str(reply)[:120]}"
    if durability == "disk":
        local = int(reply[0]) if isinstance(reply, Sequence) and reply else 0
        return "" if local >= 1 else "the append-only file was not synced in time"
    found, wanted = int(reply), _wanted(durability)
    if found >= wanted:
        return ""
    return f"{found} of {wanted} replicas had it after {CONFIRM_SECONDS:g} s"


def check_server(words: Sequence[Any], version: str, place: str) -> None:
    """Before anything is sent: check that a server of this version can confirm a publish.

    Raises:
        ConfigError: It cannot.
    """
    known = tuple(int(part) for part in _NUMBER.findall(version)[:2])
    if words[0] == "WAITAOF" and known < (7, 2):
        raise ConfigError(
            f'durability "disk" needs Redis 7.2 or newer (WAITAOF), and Redis at {place} is'
            f" {version or 'not a real server'}; nothing was stored. With appendfsync always every"
            ' answer means disk there, and "replica:1" works on every version'
        )


def _wanted(durability: str) -> int:
    return int(durability.partition(":")[2])
