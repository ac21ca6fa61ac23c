"""The lab in tests that are coroutines: handlers run in the test's own event loop."""

import asyncio

import pytest

from rqretry import App, InvalidArgument, Message
from rqretry.testing import Lab


async def test_a_ladder_in_a_coroutine(lab: Lab) -> None:
    app = lab.app(App())
    loops = []

    @app.consumer("orders", group="billing")
    async def bill(message: Message[int]) -> bool:
        loops.append(asyncio.get_running_loop())
        return message.attempt == 4

    order = await app.publish("orders", 1)
    assert await lab.arun_until_idle() == 1
    assert await lab.aadvance("10s") == 1
    assert await lab.aadvance_to_next_due() == 1
    assert await lab.aadvance("1h") == 1
    assert [a.at for a in lab.attempts(order)] == [0, 10, 40, 100]
    assert set(loops) == {asyncio.get_running_loop()}
    lab.assert_committed(order)


async def test_plain_handlers_and_duplicates_in_a_coroutine(lab: Lab) -> None:
    app = lab.app(App())
    steps = []

    @app.consumer("orders", group="billing")
    def bill(message: Message[int]) -> None:
        steps.append(message.attempt)
        if message.attempt == 1:
            lab.duplicate()
            steps.append(message.attempt)

    lab.publish("orders", 1)
    await lab.arun_until_idle()
    assert steps == [1, 2, 1]


async def test_the_sync_forms_say_what_to_write_instead(lab: Lab) -> None:
    with pytest.raises(InvalidArgument, match=r"write await lab.arun_until_idle\(\)"):
        lab.run_until_idle()
    with pytest.raises(InvalidArgument, match=r"write await lab.aadvance\(\)"):
        lab.advance(1)


async def test_two_tasks_cannot_move_time_at_once(lab: Lab) -> None:
    app = lab.app(App())
    running = asyncio.Event()

    @app.consumer("orders", group="billing")
    async def bill(message: Message[int]) -> None:
        running.set()
        await asyncio.sleep(0.01)

    order = lab.publish("orders", 1)
    async with asyncio.TaskGroup() as group:
        group.create_task(lab.arun_until_idle())
        await running.wait()
        with pytest.raises(InvalidArgument, match="the lab is already running"):
            await lab.aadvance(1)
    lab.assert_committed(order)


async def test_a_lab_is_a_context_manager_in_a_coroutine() -> None:
    app = App()

    @app.task()
    async def add(a: int, b: int) -> None: ...

    with Lab(app, "fakeredis") as lab:
        sum_ = await add.send(1, 2)
        await lab.arun_until_idle()
        lab.assert_committed(sum_)
