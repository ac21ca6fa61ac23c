"""A script whose write is refused, again and again, leases nothing and uses up no attempt."""

from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from rqretry.core.errors import RqretryError
from rqretry.core.receipt import Receipt
from tests.conftest import ServerOf
from tests.lua.conftest import virtual_time, world_on
from tests.support.builders import HOUR, failure
from tests.support.servers import SERVERS
from tests.support.world import World

IDS = ("a", "b", "c")
ROUNDS, MOST = 20, 3
"""More rounds than deliveries that a message may have."""
COMMANDS = ("ZADD", "ZREM", "HSET", "HDEL", "HINCRBY", "XADD", "LTRIM", "RPUSH", "LPUSH")
KEYS = ("wake", "failures", "counters", "events", "dead", "deaths", "due")


def attempted(act: Callable[[], object]) -> bool:
    """Whether it was done; what is refused raises."""
    try:
        act()
    except RqretryError:
        return False
    return True


def lease(world: World, receipts: list[Receipt]) -> None:
    """Lease, and add the receipts."""
    answer = world.lease(10)
    receipts += map(Receipt, answer.ids, [lease_no for lease_no, _ in answer.numbers])


def live(world: World, *, report: bool) -> Counter[str]:
    """Lease, perhaps fail or release, and expire, round after round; how often each was leased."""
    leased: Counter[str] = Counter()
    for number in range(ROUNDS):
        receipts: list[Receipt] = []
        attempted(partial(lease, world, receipts))
        leased.update(receipt.id for receipt in receipts)
        if report and receipts and number % 2:
            attempted(partial(world.release, *receipts))
        elif report and receipts:
            attempted(partial(world.fail, *(failure(*receipt) for receipt in receipts)))
        world.advance(HOUR)
        attempted(world.expire)
        attempted(world.promote)
    return leased


def check(world: World, leased: Counter[str]) -> None:
    """No message has used more attempts than it had leases that were answered."""
    state = world.state()
    for id_ in IDS:
        entry = state.get("g:attempts", {}).get(id_, "1:1:0:0")
        assert int(entry.split(":")[1]) - 1 <= leased[id_], (id_, entry, leased)
        assert id_ not in state.get("g:dead", {}) or leased[id_] >= MOST, (id_, leased)


@pytest.fixture(params=SERVERS)
def world(request: pytest.FixtureRequest, server_of: ServerOf) -> World:
    """Three messages on a server of each generation."""
    world = world_on(server_of, request.param, virtual_time())
    world.subscribe(max_retries=MOST - 1)
    world.publish(*IDS)
    return world


@pytest.mark.parametrize("report", [False, True], ids=["expires", "reported"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_missing_right_burns_no_attempt(world: World, command: str, *, report: bool) -> None:
    world.client.execute_command("ACL", "SETUSER", "default", f"-{command}")
    try:
        leased = live(world, report=report)
    finally:
        world.client.execute_command("ACL", "SETUSER", "default", "+@all")
    check(world, leased)


@pytest.mark.parametrize("report", [False, True], ids=["expires", "reported"])
@pytest.mark.parametrize("name", KEYS)
def test_a_key_of_another_type_burns_no_attempt(world: World, name: str, *, report: bool) -> None:
    place = world.keys if name in ("counters", "events") else world.group()
    world.damage().set(getattr(place, name), "damaged")
    leased = live(world, report=report)
    world.client.delete(getattr(place, name))
    check(world, leased)
