"""What becomes of a copy of the process that a handler forks: it ends when its handler does.

The copy has the sockets and pipes of the process, and the program behind the handler: if it went
on, it would answer and settle a second time, and outlive the worker.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

log = logging.getLogger("rqretry")

is_copy = False
"""Whether this process was forked inside of a handler. Whoever has called one looks at it next."""
_guarded = 0
"""How many of those that call handlers are at work in this process."""


@contextmanager
def ending_copies() -> Iterator[None]:
    """Handlers are called here: what is forked meanwhile is a copy, unless it calls its own."""
    global is_copy, _guarded  # noqa: PLW0603 - of the process, as a fork is
    before, is_copy = is_copy, False
    _guarded += 1
    try:
        yield
    finally:
        _guarded -= 1
        is_copy = before


def end_copy() -> NoReturn:
    """End this process at once: none of what its parent still has to do is done here."""
    log.warning(
        "process %d, which a handler forked, came back from the handler: it ends; "
        "end such a process inside of the handler, with os._exit()",
        os.getpid(),
    )
    os._exit(0)


def _mark() -> None:
    global is_copy, _guarded
    is_copy, _guarded = is_copy or _guarded > 0, 0


os.register_at_fork(after_in_child=_mark)
