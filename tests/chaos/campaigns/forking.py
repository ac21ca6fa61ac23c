"""Forks of this process: they have imported everything already, and end with their parent.

A campaign starts some hundred runs and a thousand workers; a fork takes milliseconds where a new
interpreter with all imports takes a second of a core. Only for processes with one thread.
"""

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


def fork(work: Callable[[], object], log: Path | None = None) -> int:
    """Run `work` in a process of its own.

    Args:
        work: What it does. What it returns is its exit status, where that is a number; an exception
            is status 1, and its traceback goes to standard error.
        log: Where standard error goes; default where that of this process goes.

    Returns:
        Its process id; wait for it with os.waitpid.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _be(work, log)
    return pid


def _be(work: Callable[[], object], log: Path | None) -> None:
    """What a child does; does not return."""
    status = 1
    try:
        if sys.platform == "linux":  # nobody outlives the parent
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        if log is not None:
            os.dup2(os.open(log, _APPEND, 0o600), 2)
        answer = work()
        status = answer if isinstance(answer, int) else 0
    except BaseException:  # noqa: BLE001 - a child never runs its parent's own code
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)
