"""Standard streams as they may be found: closed, full, or of an encoding that lacks characters."""

import io
import os
import sys
from contextlib import suppress
from typing import TextIO

_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def prepare_streams() -> None:
    """Make sure that all three are open, and that any text can be printed.

    A closed one is replaced by the null device. Left closed, the next file or socket would get its
    number, and stray output would go there.
    """
    for name, mode in _STREAMS:  # in the order of their numbers: the lowest free one is given
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115, PTH123 - it stays open
            os.set_inheritable(stream.fileno(), True)  # noqa: FBT003 - it takes no name
            setattr(sys, name, stream)
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(errors="backslashreplace")


def takes_all_text(stream: TextIO) -> bool:
    """Whether every character can be written there as it is."""
    return (stream.encoding or "").lower().startswith("utf")


def flush_output() -> None:
    """Write what is buffered. What cannot be written is discarded.

    The interpreter would try again on exit, and report the failure itself.

    Raises:
        OSError: It could not be written.
    """
    try:
        sys.stdout.flush()
    except OSError:
        forget_output()
        raise


def forget_output() -> None:
    """Discard what is buffered and all later output."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
