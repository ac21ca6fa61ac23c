"""A free slot does not wait for a busy one."""

import asyncio
from typing import Any

import pytest

from rqretry import Message
from tests.contract.integration.harness import Lab, Seen, counted
from tests.contract.surface.harness import working


@pytest.mark.parametrize("concurrency", [2, 3, 64])
async def test_free_slots_work_while_other_handlers_of_the_consumer_are_slow(
    lab: Lab, concurrency: int
) -> None:
    app, seen, go_on = lab.app(), Seen(), asyncio.Event()

    @app.consumer("t", group="g", concurrency=concurrency)
    async def handle(message: Message[Any]) -> None:
        seen.add(message)
        if message.body == "slow":
            await go_on.wait()

    async with working(app):
        for number in range(1, concurrency):
            await app.publish("t", "slow")
            await seen.count(number)
        await app.publish_many("t", range(10))
        await counted(lab, "g", succeed=10)
        go_on.set()
        await counted(lab, "g", succeed=9 + concurrency, expire=0)
