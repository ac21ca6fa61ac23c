"""A process that has imported everything, and forks workers and publishers from itself.

Five hundred killed workers need five hundred new ones; a fork takes milliseconds where a new
interpreter takes a third of a second. Nothing of rqretry has run before the fork but its imports.

    python -m tests.chaos.campaigns.nursery

One JSON order per line on standard input, one line of answer. Children are waited for only here,
so a process id that was given out stays that child's. The end of the input ends everything.
"""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import Any, Self

from tests.chaos.campaigns.actors import ROLES

_PR_SET_PDEATHSIG = 1
ROOT = Path(__file__).parents[3]


class Nursery:
    """Starts and signals the children of a nursery process. A context manager."""

    def __init__(self, log: Path) -> None:
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                (sys.executable, "-m", "tests.chaos.campaigns.nursery"),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, bufsize=1,
                cwd=ROOT,
            )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._process.communicate()

    def start(self, role: str, **order: Any) -> int:
        """Fork a child; its process id."""
        return int(self._tell(do="start", role=role, order=order))

    def signal(self, pid: int, number: signal.Signals) -> bool:
        """Signal a child; whether it still ran. One that was killed has ended when this returns."""
        return bool(self._tell(do="signal", pid=pid, number=int(number)))

    def running(self) -> set[int]:
        """The children that have not ended."""
        return set(self._tell(do="running"))

    def wait(self, pids: set[int], seconds: float) -> set[int]:
        """Wait for children to end; those that have not."""
        end = time.monotonic() + seconds
        while (left := pids & self.running()) and time.monotonic() < end:
            time.sleep(0.02)
        return left

    def _tell(self, **order: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        answer = self._process.stdout.readline()
        assert answer, "the nursery has ended; see its log"
        return json.loads(answer)


class _Children:
    """The nursery's own side."""

    def __init__(self) -> None:
        self.pids: set[int] = set()

    def start(self, role: str, order: dict[str, Any]) -> int:
        pid = os.fork()
        if pid == 0:
            _be(role, order)
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


def _be(role: str, order: dict[str, Any]) -> None:
    """What a child does; does not return."""
    status = 1
    try:
        if sys.platform == "linux":  # nobody outlives the nursery
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        ROLES[role](order)
        status = 0
    except BaseException:  # noqa: BLE001 - a child never runs the nursery's own code
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _leave(_number: int, _frame: FrameType | None) -> None:
    sys.exit(0)


def main() -> None:
    """Serve orders until the input ends."""
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the driver decides
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
