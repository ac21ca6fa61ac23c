"""What the figures were measured with: no host name, no path, nothing about a person."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from rqretry.testing.embedded_redis import find_server, server_version

_LIBRARIES = ("redis", "hiredis", "uvloop", "msgpack")


def about() -> dict[str, Any]:
    """The machine, the versions, and the commit."""
    return {
        "measured": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),  # noqa: TID251 - for people
        "commit": _commit(),
        "cores": os.cpu_count(),
        "load_1m": round(os.getloadavg()[0], 2),
        "machine": platform.machine(),
        "system": platform.system(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "redis_server": server_version(find_server()),
        **{name: _version(name) for name in _LIBRARIES},
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str:
    """The commit, with a + where files differ from it."""
    described = ("git", "describe", "--always", "--dirty=+", "--abbrev=10", "--exclude=*")
    try:
        return subprocess.run(described, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
