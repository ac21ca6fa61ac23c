"""Running a worker inside somebody's event loop."""

import asyncio
import signal

from rqretry.worker.worker import Worker

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


async def run_until_stopped(worker: Worker, signals: bool) -> None:  # noqa: FBT001 - as App.run has it
    """Run a worker; stop it gracefully when cancelled, or at a signal."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(worker.run(), name="rqretry worker")
    for number in _SIGNALS if signals else ():
        loop.add_signal_handler(number, worker.stop)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        worker.stop()
        await task
        raise
    finally:
        for number in _SIGNALS if signals else ():
            loop.remove_signal_handler(number)
