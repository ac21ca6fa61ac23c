"""Two processes let a group leave a topic, and it joins again before the slower one is done."""

from typing import Any

from rqretry.catalog.catalog import Catalog
from rqretry.protocol.command import Command, Each, Operation
from tests.conftest import ServerOf
from tests.lua.conftest import virtual_time, world_on
from tests.lua.test_restored_catalog import joined
from tests.support.world import World

_MOST = 200


class Paused:
    """An operation that stops before a call, which is sent when it goes on."""

    def __init__(self, world: World, operation: Operation[Any]) -> None:
        self._world, self._operation = world, operation
        self._step = next(operation)

    def go(self, calls: int = _MOST) -> bool:
        """Make so many calls; whether the operation is done."""
        for _ in range(calls):
            step = self._step
            assert isinstance(step, list | Each | Command), step
            commands = step.commands if isinstance(step, Each) else step
            found: Any = (
                self._world.run(commands)
                if isinstance(commands, Command)
                else [self._world.run(command) for command in commands]
            )
            try:
                self._step = self._operation.send(found)
            except StopIteration:
                return True
        return False


def left_and_joined_again(world: World, calls: int) -> bool | None:
    """The slower one stops behind so many calls: had it begun? None: it was done."""
    world.client.flushall()
    world.set_time(world.now)
    quick, slow = Catalog("test"), Catalog("test")
    world.perform(quick.topics.create("t", 1))
    joined(world, quick, "other")
    joined(world, quick, "g")
    late = Paused(world, slow.subscriptions.leave("g", "t"))
    if late.go(calls):
        return None
    begun = "t" in world.perform(quick.store.group("g")).leaving
    world.perform(quick.subscriptions.leave("g", "t"))
    world.route = joined(world, quick, "g").route
    world.publish("a")
    assert late.go()
    return begun


def test_a_slower_leave_takes_nothing_from_a_group_that_has_joined_again(
    server_of: ServerOf,
) -> None:
    world = world_on(server_of, "redis-6.2", virtual_time())
    calls = tried = 0
    while (begun := left_and_joined_again(world, calls)) is not None:
        calls += 1
        if begun:
            tried += 1
            topic = world.perform(Catalog("test").store.topic("t"))
            kept = (bool(topic.byte_of("g")), topic.leaving, world.lease(group="g").ids)
            assert kept == (True, (), ["a"]), f"before call {calls}"
    assert tried > 20
