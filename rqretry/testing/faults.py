"""What can go wrong with an attempt, armed in advance by the test."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum


class Fault(Enum):
    """What happens to one delivery."""

    CRASH = "the worker dies before the handler starts"
    CRASH_AFTER = "the handler runs, and the worker dies before it reports the result"
    LOSE_LEASE = "the handler runs, and the lease ends before the result is reported"
    DUPLICATE = "the lease ends before the handler starts: another delivery runs first"


class WorkerCrash(BaseException):
    """Raised by lab.crash() inside a handler, to leave it; not an Exception on purpose."""


@dataclass(slots=True)
class _Armed:
    fault: Fault
    worker: str | None
    id: str | None

    def hits(self, worker: str, id_: str) -> bool:
        return self.worker in (None, worker) and self.id in (None, id_)


class Faults:
    """The armed faults, each waiting for its delivery."""

    def __init__(self) -> None:
        self._once: list[_Armed] = []
        self._standing: list[_Armed] = []

    def arm(self, fault: Fault, *, worker: str | None = None, id_: str | None = None) -> None:
        """The next delivery to this worker, or of this message, has the fault."""
        self._once.append(_Armed(fault, worker, id_))

    @contextmanager
    def standing(self, fault: Fault, worker: str | None) -> Iterator[None]:
        """Inside the block every delivery has the fault."""
        armed = _Armed(fault, worker, None)
        self._standing.append(armed)
        try:
            yield
        finally:
            self._standing.remove(armed)

    def take(self, worker: str, id_: str) -> Fault | None:
        """The fault of this delivery, if any."""
        for armed in self._once:
            if armed.hits(worker, id_):
                self._once.remove(armed)
                return armed.fault
        return next((a.fault for a in self._standing if a.hits(worker, id_)), None)
