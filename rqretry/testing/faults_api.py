"""The part of a lab that injects faults: crashes, lost leases, duplicates."""

import asyncio
from contextlib import AbstractContextManager

from rqretry.core.errors import InvalidArgument, refuse
from rqretry.core.limits import check_count
from rqretry.testing.engine import RUNNING, Engine, Running
from rqretry.testing.faults import Fault, WorkerCrash


class FaultInjection:
    """Faults that happen now, in a running handler, or are armed for the next delivery."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop while the lab runs."""

    def crash(self, worker: str | None = None, *, after_handler: bool = False) -> None:
        """A worker dies: nothing is reported for what it has leased, which expires in time.

        In a handler (of that worker) the worker dies at once: this call does not return, and
        neither `except Exception` nor the server sees anything of it. Elsewhere the crash is armed:
        the worker dies with the next message it leases, before the handler starts.

        Args:
            worker: The worker's name, which in a lab is its consumer group; default whichever is
                running, or takes the next message.
            after_handler: Armed only: the handler runs to its end, and its result is never
                reported.

        Raises:
            InvalidArgument: There is no such worker.
        """
        self._check_worker(worker)
        running = RUNNING.get()
        if running is not None and not after_handler and worker in (None, running.place.worker):
            running.delivery.lost = True
            raise WorkerCrash
        fault = Fault.CRASH_AFTER if after_handler else Fault.CRASH
        self._engine.faults.arm(fault, worker=worker)

    def crashing(self, worker: str | None = None) -> AbstractContextManager[None]:
        """Inside `with lab.crashing():` every worker (or this one) dies with every message."""
        self._check_worker(worker)
        return self._engine.faults.standing(Fault.CRASH, worker)

    def lose_lease(self, id: str | None = None) -> None:  # noqa: A002 - as publish has it
        """A lease ends while its handler runs: time moves to its deadline; the message expires.

        The handler continues, `message.cancelled` is True, its result is rejected, and the message
        will be delivered again as after a crash. In the handler of the message this happens at
        once; elsewhere it is armed for the next delivery, at the end of its handler.

        Args:
            id: The message; default the one that is running, or the next one.
        """
        running = self._here(id)
        if running is None:
            self._engine.faults.arm(Fault.LOSE_LEASE, id_=id)
        else:
            self._engine.lose(running.place, running.delivery)

    def duplicate(self, id: str | None = None) -> None:  # noqa: A002 - as publish has it
        """A message is delivered once more while its handler is still running.

        As lose_lease, and then everything that is due runs until the second delivery has ended;
        only then does the first handler continue. In a plain handler of the message this happens at
        once; elsewhere it is armed for the next delivery: its handler starts after the second one
        has ended, as when a worker stalls between lease and start. After the first expiry the
        second delivery comes at once, later ones by the ladder; after the last attempt there is
        none.

        Args:
            id: The message; default the one that is running, or the next one.

        Raises:
            InvalidArgument: This is an async handler: await `aduplicate`.
        """
        running = self._here(id)
        if running is None:
            self._engine.faults.arm(Fault.DUPLICATE, id_=id)
            return
        if loop_here() is not None:
            raise InvalidArgument("in an async handler write: await lab.aduplicate()")
        assert self._loop is not None
        again = self._engine.duplicate(running.place, running.delivery)
        asyncio.run_coroutine_threadsafe(again, self._loop).result()

    async def aduplicate(self) -> None:
        """Duplicate the message of the async handler that awaits this."""
        running = RUNNING.get()
        if running is None:
            raise InvalidArgument("await lab.aduplicate() in a handler; else call lab.duplicate()")
        await self._engine.duplicate(running.place, running.delivery)

    def next_attempt(
        self,
        id: str,  # noqa: A002 - as publish has it
        number: int,
        *,
        group: str | None = None,
        last_error: str = "",
    ) -> None:
        """The next delivery of a message has this number, as if it had failed that often before.

        Args:
            id: A message that waits for its first delivery.
            number: 1 or more; above the group's deliveries, a failure is its last.
            group: Default every group of its topic.
            last_error: What `message.last_error.message` is to say; default it is None.
        """
        checked = check_count(number, name="number")
        for place in self._engine.places:
            if group in (None, place.worker):
                self._engine.set_attempt(place, id, checked, last_error)

    def _here(self, id_: str | None) -> Running | None:
        running = RUNNING.get()
        return running if running is not None and id_ in (None, running.delivery.id) else None

    def _check_worker(self, worker: str | None) -> None:
        self._engine.join()
        known = list(dict.fromkeys(place.worker for place in self._engine.places))
        if worker is not None and worker not in known:
            refuse(
                "worker",
                worker,
                f"is not a worker of this lab: {', '.join(known) or 'it has none'}",
            )


def loop_here() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread, if one does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
