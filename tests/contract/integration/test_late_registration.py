"""What is registered while a worker runs would never be served: it is refused."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rqretry import App, ConfigError
from rqretry.core.parts import parts_of
from rqretry.worker.worker import Worker
from tests.contract.integration.harness import Lab


async def handle(message: Any) -> None:
    """A handler."""


@asynccontextmanager
async def running(app: App) -> AsyncIterator[Worker]:
    """A worker of the app's own, stopped at the end."""
    worker = parts_of(app).worker(grace=1)
    task = asyncio.create_task(worker.run())
    await worker.started.wait()
    yield worker
    worker.stop()
    await task


def register_late(app: App) -> None:
    """Each kind of what a worker serves, under names that are not taken."""
    for register in (
        app.consumer("late", group="late"),
        app.topic("late_too").consumer(group="late"),
        app.task("late_task"),
        app.transaction_checker("late"),
    ):
        with pytest.raises(ConfigError, match="while a worker of this app runs"):
            register(handle)


async def test_nothing_is_registered_while_a_worker_runs(lab: Lab) -> None:
    app = lab.app()
    app.consumer("t", group="g")(handle)
    async with running(app):
        register_late(app)
    assert [spec.group for spec in parts_of(app).consumers] == ["g"]
    app.consumer("late", group="late")(handle)
    async with running(app) as worker:
        assert {place.topic for place in worker.places} == {"t", "late"}


async def test_a_worker_that_was_made_before_says_so_when_it_starts(lab: Lab) -> None:
    app = lab.app()
    app.consumer("t", group="g")(handle)
    worker = parts_of(app).worker()
    app.consumer("late", group="late")(handle)
    with pytest.raises(ConfigError, match="registered after the worker was made"):
        await worker.run()
