"""When a worker process is replaced by a fresh one: by messages finished, and by memory."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from rqretry.core.errors import ConfigError

LOOK_EVERY_S = 1.0
_FIRST_LOOK_S = 3.0
"""A limit below what the app needs to start must not make its processes spin."""
_STATM = Path("/proc/self/statm")
_MIB = 1024 * 1024

Retire = Callable[[str], None]


class MessageLimit:
    """Calls `retire` once, when the consumers of a process have finished a number of messages."""

    def __init__(self, most: int, retire: Retire) -> None:
        self._most = self._left = most
        self._retire = retire

    def count(self) -> None:
        """A message is finished."""
        self._left -= 1
        if self._left == 0:
            self._retire(f"it has finished {self._most} messages (--max-messages)")


async def retire_above_memory(most: int, retire: Retire) -> None:
    """Call `retire` when the resident memory of this process is above `most` bytes."""
    await asyncio.sleep(_FIRST_LOOK_S)
    while (held := resident_bytes()) <= most:  # noqa: ASYNC110 - there is no event for that
        await asyncio.sleep(LOOK_EVERY_S)
    retire(f"it holds {held // _MIB} MiB of memory, more than {most // _MIB} (--max-memory)")


def resident_bytes() -> int:
    """The resident memory of this process. Raises ConfigError if the system does not say."""
    try:
        pages = int(_STATM.read_text(encoding="ascii").split()[1])
    except OSError as error:
        raise ConfigError(
            f"--max-memory needs {_STATM}, which this system does not have: remove --max-memory"
        ) from error
    return pages * os.sysconf("SC_PAGE_SIZE")
