"""Workers as `app.run` makes them: with middleware, callbacks and everything declared."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rqretry import App
from rqretry.core.dead_letter import DeadLetterRecord
from rqretry.core.parts import parts_of
from rqretry.worker.worker import Worker
from tests.contract.integration.harness import PATIENCE_S, Lab, counted


@asynccontextmanager
async def working(app: App, **options: Any) -> AsyncIterator[Worker]:
    """A worker of the app in this process, stopped at the end."""
    worker = parts_of(app).worker(**{"grace": 2.0, **options})
    task = asyncio.ensure_future(worker.run())
    started = asyncio.ensure_future(worker.started.wait())
    await asyncio.wait([task, started], timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
    started.cancel()
    if task.done():
        task.result()
    try:
        yield worker
    finally:
        worker.stop()
        async with asyncio.timeout(PATIENCE_S):
            await task


async def only_dead_letter(lab: Lab, app: App, group: str) -> DeadLetterRecord:
    """Wait for the one dead letter of a group."""
    await counted(lab, group, dead=1, succeed=0)
    (dead_letter,) = await app.admin.dead_letters(group)
    return dead_letter
