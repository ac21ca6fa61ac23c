"""Where the threads of a worker process stand that does not answer, as its supervisor asks it.

The process need not run any Python for that: the signal's handler is faulthandler's. It writes into
a file that both have open.
"""

import faulthandler
import os
import re
import signal
import time
from contextlib import suppress
from multiprocessing.reduction import DupFd
from typing import Any

from rqretry.worker.lease_journal import shared_file

_SIGNAL = signal.SIGUSR2
_PATIENCE_S, _LOOK_EVERY_S = 1.0, 0.01
_MOST_BYTES = 100_000
_FRAME = re.compile(r'File "(?:[^"]*/)?([^"/]+)", line (\d+) in (\S+)')
_OURS = "worker_process.py"
_INNERMOST = 6


class StackDump:
    """The file of one process; made by its supervisor, and picklable for its start."""

    def __init__(self, fd: int | None = None) -> None:
        self._fd = shared_file() if fd is None else fd

    def __reduce__(self) -> tuple[Any, ...]:
        return _attached, (DupFd(self._fd),)

    def listen(self) -> None:
        """Write there whenever the supervisor asks; in the process."""
        faulthandler.register(_SIGNAL, file=self._fd, all_threads=True)

    def ask(self, pid: int) -> str:
        """The stacks of a process; "" if it does not write any."""
        begin = os.fstat(self._fd).st_size
        try:
            os.kill(pid, _SIGNAL)
        except ProcessLookupError:
            return ""
        until, size = time.monotonic() + _PATIENCE_S, -1
        while time.monotonic() < until:  # it is written piece by piece
            before, size = size, os.fstat(self._fd).st_size
            if size == before > begin:
                break
            time.sleep(_LOOK_EVERY_S)
        return os.pread(self._fd, _MOST_BYTES, begin).decode(errors="replace")

    def close(self) -> None:
        """The supervisor's side."""
        os.close(self._fd)


def innermost(stacks: str) -> str:
    """Where the event loop's thread stands, in one line, the innermost call first."""
    threads = stacks.split("\n\n")
    with suppress(StopIteration):
        loop = next(thread for thread in threads if _OURS in thread)
        frames = _FRAME.findall(loop)[:_INNERMOST]
        return " < ".join(f"{function} ({file}:{line})" for file, line, function in frames)
    return ""


def _attached(duplicate: Any) -> StackDump:
    return StackDump(duplicate.detach())
