"""The name of this worker in histories, records and registrations."""

import os
import socket
from itertools import count

_numbers = count(1)


def worker_name() -> str:
    """host:pid:number, unique among running workers."""
    return f"{process_name(os.getpid())}:{next(_numbers)}"


def process_name(pid: int) -> str:
    """host:pid of a process of this machine, the prefix of its workers' names."""
    host = "".join(c if c.isalnum() or c in "-_." else "-" for c in socket.gethostname())[:60]
    return f"{host}:{pid}"
