"""A process that has imported everything, and forks workers and publishers from itself.

Five hundred killed workers need five hundred new ones; a fork takes milliseconds where a new
interpreter takes a third of a second. Nothing of rqretry has run before the fork but its imports.

    python -m tests.chaos.campaigns.nursery

One JSON order per line on standard input, one line of answer. Children are waited for only here,
so a process id that was given out stays that child's. The end of the input ends everything.
"""

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import IO, Any, NamedTuple, Self

from tests.chaos.campaigns import gateway_actors
from tests.chaos.campaigns.actors import ROLES
from tests.chaos.campaigns.forking import fork

_ROLES = ROLES | {
    "gateway": gateway_actors.serve,
    "publish by gateway": gateway_actors.publish,
    "consume by gateway": gateway_actors.consume,
}
ROOT = Path(__file__).parents[3]


class _Lines(NamedTuple):
    """The two lines to a nursery process, and how to wait for its end."""

    orders: IO[str]
    answers: IO[str]
    ended: Callable[[], object]


class Nursery:
    """Starts and signals the children of a nursery process. A context manager.

    Args:
        log: Where standard error of all of them goes.
        forked: It is a fork of this process, which has no other thread; else an interpreter of its
            own.
    """

    def __init__(self, log: Path, *, forked: bool = False) -> None:
        self._lines = _forked(log) if forked else _spawned(log)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._lines.orders.close()
        self._lines.ended()
        self._lines.answers.close()

    def start(self, role: str, **order: Any) -> int:
        """Fork a child; its process id."""
        return int(self._report(do="start", role=role, order=order))

    def signal(self, pid: int, number: signal.Signals) -> bool:
        """Signal a child; whether it still ran. One that was killed has ended when this returns."""
        return bool(self._report(do="signal", pid=pid, number=int(number)))

    def running(self) -> set[int]:
        """The children that have not ended."""
        return set(self._report(do="running"))

    def wait(self, pids: set[int], seconds: float) -> set[int]:
        """Wait for children to end; those that have not."""
        end = time.monotonic() + seconds
        while (left := pids & self.running()) and time.monotonic() < end:
            time.sleep(0.02)
        return left

    def _report(self, **order: Any) -> Any:
        self._lines.orders.write(json.dumps(order) + "\n")
        answer = self._lines.answers.readline()
        assert answer, "the nursery has ended; see its log"
        return json.loads(answer)


def _spawned(log: Path) -> _Lines:
    with log.open("ab") as errors:
        process = subprocess.Popen(
            (sys.executable, "-m", "tests.chaos.campaigns.nursery"),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, bufsize=1,
            cwd=ROOT,
        )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    return _Lines(process.stdin, process.stdout, process.wait)


def _forked(log: Path) -> _Lines:
    orders, answers = os.pipe(), os.pipe()

    def serve() -> None:
        os.dup2(orders[0], 0)  # of which its own children keep nothing
        os.dup2(answers[1], 1)
        for end in (*orders, *answers):
            os.close(end)
        sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
        main()

    pid = fork(serve, log)
    os.close(orders[0])
    os.close(answers[1])
    stated = os.fdopen(orders[1], "w", buffering=1)
    return _Lines(stated, os.fdopen(answers[0]), partial(os.waitpid, pid, 0))


class _Children:
    """The nursery's own side."""

    def __init__(self) -> None:
        self.pids: set[int] = set()

    def start(self, role: str, order: dict[str, Any]) -> int:
        pid = fork(partial(_ROLES[role], order))
        self.pids.add(pid)
        return pid

    def signal(self, pid: int, number: int) -> bool:
        if pid not in self.running():
            return False
        os.kill(pid, number)
        if number == signal.SIGKILL:
            os.waitpid(pid, 0)
            self.pids.discard(pid)
        return True

    def running(self) -> list[int]:
        for pid in list(self.pids):
            if os.waitpid(pid, os.WNOHANG)[0]:
                self.pids.discard(pid)
        return sorted(self.pids)

    def close(self) -> None:
        for pid in self.running():
            self.signal(pid, signal.SIGKILL)


def _leave(_number: int, _frame: FrameType | None) -> None:
    sys.exit(0)


def main() -> None:
    """Serve orders until the input ends."""
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the driver decides
    gc.freeze()  # so that no child has to copy what all of them share
    children = _Children()
    try:
        for line in sys.stdin:
            order = json.loads(line)
            match order.pop("do"):
                case "start":
                    answer: Any = children.start(order["role"], order["order"])
                case "signal":
                    answer = children.signal(order["pid"], order["number"])
                case _:
                    answer = children.running()
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
    finally:
        children.close()


if __name__ == "__main__":
    main()
