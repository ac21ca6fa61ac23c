"""How this process calls itself in histories, records and rosters."""

import os
import socket
from itertools import count

_numbers = count(1)


def worker_name() -> str:
    """host:pid:number, unique among the running ones."""
    return f"{process_name(os.getpid())}:{next(_numbers)}"


def process_name(pid: int) -> str:
    """host:pid of a process of this machine: how the names of its workers begin."""
    host = "".join(c if c.isalnum() or c in "-_." else "-" for c in socket.gethostname())[:60]
    return f"{host}:{pid}"
