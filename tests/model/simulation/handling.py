"""Workers and simple consumers: what handlers do, and what becomes of their processes."""

import asyncio
from typing import Any

from rqretry.client import AsyncClient
from rqretry.consumer.transaction_checker import TransactionCheck, TransactionResolution
from rqretry.core.consume_result import ConsumeResult
from rqretry.core.errors import InvalidArgument, InvalidReceiptHandle, RqretryError
from rqretry.core.message import Message, ReceiptHandle
from rqretry.testing.clock import START_MS
from tests.model.model import DONE
from tests.model.simulation.calls import NAMESPACE, require
from tests.model.simulation.clients import client_of
from tests.model.simulation.loop import Process, current
from tests.model.simulation.network import store_of
from tests.model.simulation.plans import DURATIONS_S, GroupPlan
from tests.model.simulation.processes import TOPIC, SimulatedWorker, app_of, options_of
from tests.model.simulation.world import World

_PAUSE = 0.02


async def work(world: World, process: Process) -> None:
    """A worker; it may be told to stop, and another one takes its place."""

    async def handle(group: str, messages: list[Message[Any]]) -> list[Any]:
        for message in messages:
            world.begun(group, message)
        if len(messages) == 1:  # a task of its own would change the order of what runs
            return [await _handle_safely(world, group, messages[0])]
        each = (_handle_safely(world, group, message) for message in messages)
        return await asyncio.gather(*each)

    def check(asked: TransactionCheck) -> TransactionResolution:
        return _check(world, asked)

    groups = [group for group in world.plan.groups if group.kind == "push"]
    app = app_of(str(world.url), NAMESPACE, groups, handle, check, world.plan.every_s)
    store = store_of(world.network, process, world.url, world.plan.repeats_s)
    worker = SimulatedWorker(app, store)
    stopping = asyncio.get_running_loop().create_task(_stop(world, process, worker))
    await worker.run()
    stopping.cancel()
    world.loop.spawn(None, world.again(process))


async def _stop(world: World, process: Process, worker: SimulatedWorker) -> None:
    while True:
        await asyncio.sleep(1.0)
        name = world.chance.numbered(f"{process.name}/stops")
        if not world.healed and world.chance.happens(name, world.plan.stops):
            worker.stop()
            return


async def _handle_safely(world: World, group: str, message: Message[Any]) -> Any:
    try:
        return await _handle(world, group, message)
    except ValueError as error:
        return error


async def _handle(world: World, group: str, message: Message[Any]) -> ConsumeResult:
    chance, plan, process = world.chance, world.plan, current()
    name = chance.numbered(f"{group}/{message.body['n']}")
    if world.healed:
        return ConsumeResult.SUCCESS
    await asyncio.sleep(plan.lasts * chance.one(f"{name}/lasts", DURATIONS_S))
    if chance.happens(f"{name}/kills", plan.kills) and world.kill(process):
        await asyncio.get_running_loop().create_future()
    if chance.happens(f"{name}/freezes", plan.freezes):
        world.freeze(process, 8 * chance.share(f"{name}/frozen"))
        await asyncio.sleep(0.001)
    if not chance.happens(f"{name}/fails", plan.fails):
        return ConsumeResult.SUCCESS
    how = chance.whole(f"{name}/how", 0, 6)
    if how == 0:
        return ConsumeResult.dead_letter("no use")
    if how == 1:
        return ConsumeResult.postpone("700ms")
    if how == 2:
        return ConsumeResult.retry(level=2)
    if how == 3:
        return ConsumeResult.retry(after="300ms")
    if how == 4:
        raise ValueError(name)
    return ConsumeResult.failure("not now")


class Receiver:
    """A simple consumer; what it knows is lost when its process is killed."""

    def __init__(self, group: GroupPlan) -> None:
        self._group = group

    async def receive(self, world: World, process: Process) -> None:
        """Receive, and acknowledge most of it; now and then with a consumer made anew."""
        client = client_of(world, process)
        await asyncio.sleep(max(0.0, self._group.comes_s - asyncio.get_running_loop().time()))
        consumer = self._made(client)
        while True:
            anew = world.chance.numbered(f"{process.name}/made anew")
            if world.chance.happens(anew, world.plan.anew):
                consumer = self._made(client)
            try:
                received = await consumer.receive(4, self._group.visibility_s, wait=1)
                for message in received:
                    await self._see_to(world, consumer, message)
            except (InvalidReceiptHandle, InvalidArgument):  # or it was released too often
                pass
            except RqretryError:
                await asyncio.sleep(0.1)
            await asyncio.sleep(_PAUSE)

    def _made(self, client: AsyncClient) -> Any:
        options = options_of(self._group)
        begins_s = self._group.begins_s
        return client.simple_consumer(
            TOPIC,
            group=self._group.name,
            create_group=True,
            max_retries=options["max_retries"],
            tags=options["tags"],
            ordered=options["ordered"],
            max_postpones=options["max_postpones"],
            start="latest" if begins_s is None else START_MS / 1000 + begins_s,
        )

    async def _see_to(self, world: World, consumer: Any, message: Message[Any]) -> None:
        chance, group = world.chance, self._group.name
        name = chance.numbered(f"{group}/{message.body['n']}")
        if not world.healed:
            if not world.plan.backlog:
                await asyncio.sleep(chance.one(f"{name}/lasts", DURATIONS_S) / 2)
            if chance.happens(f"{name}/kills", world.plan.kills) and world.kill(current()):
                await asyncio.get_running_loop().create_future()
            if chance.happens(f"{name}/not acknowledged", world.plan.dies_late):
                return
            if chance.happens(f"{name}/changes", world.plan.fails / 3):
                seconds = chance.one(
                    f"{name}/to", (0, 0, 0.2) if world.plan.backlog else (0, 0.2, 1.5)
                )
                await consumer.change_invisible_duration(message, seconds)
                if seconds == 0:
                    return
            if chance.happens(f"{name}/releases", world.plan.fails / 3):
                await consumer.release(message)
                return
        await consumer.ack(message)
        handle = ReceiptHandle.parse(message.receipt_handle)
        one = world.lease_of(group, handle)
        done = one is None or one.place == DONE or one.lease_no > handle.lease_no  # replayed
        require(done, f"{handle.id} is acknowledged, and {one}")


def _check(world: World, asked: TransactionCheck) -> TransactionResolution:
    name = f"check/{asked.messages[0].body['n']}" if asked.messages else "check"
    answer = world.chance.whole(world.chance.numbered(name), 0, 9)
    if answer < 3 and not world.healed:
        return TransactionResolution.UNKNOWN
    return TransactionResolution.COMMIT if answer < 7 else TransactionResolution.ROLLBACK
