"""Lease numbers never come back: not for a new life of an id, nor on a server that lost writes."""

from functools import cache

import pytest

from rqretry.core.receipt import Receipt
from rqretry.protocol.scripts import ScriptLibrary
from tests.conftest import ServerOf
from tests.lua.conftest import world_on
from tests.support.builders import HOUR, SECOND, failure, prepared
from tests.support.lua_hooks import CLOCK_KEY, VIRTUAL_CLOCK
from tests.support.world import START_MS, VISIBILITY_MS, World

LIFE_KEY = f"{CLOCK_KEY}:life"
LIVES = f"""
local function incarnation()
  return redis.call('GET', '{LIFE_KEY}') or 'first'
end
"""
MANY = 5_001
"""More than a place gives numbers of their own at once."""


@cache
def mortal() -> ScriptLibrary:
    """The scripts on a server whose life a test can end."""
    return ScriptLibrary(overrides={"clock": VIRTUAL_CLOCK, "incarnation": LIVES})


@pytest.fixture
def alive(server_of: ServerOf) -> World:
    """A partition whose server can be replaced."""
    world = world_on(server_of, "redis-6.2", mortal())
    world.subscribe()
    return world


def restored(world: World, data: dict[bytes, bytes]) -> None:
    """The server comes back with an older state; time has passed."""
    world.client.flushall()
    for key, dump in data.items():
        world.client.restore(key, 0, dump)
    world.client.set(LIFE_KEY, f"from {world.now}")
    world.advance(SECOND)


def snapshot(world: World) -> dict[bytes, bytes]:
    return {key: world.client.dump(key) for key in world.client.keys("rqretry:test:*")}


def lease_one(world: World) -> Receipt:
    leased = world.lease(1)
    return Receipt(leased.ids[0], leased.numbers[0][0])


def test_a_message_leased_again_after_lost_writes_has_another_number(alive: World) -> None:
    alive.publish("a")
    data = snapshot(alive)
    lost = lease_one(alive)
    restored(alive, data)
    new = lease_one(alive)
    assert new.lease_no > lost.lease_no
    assert alive.succeed(lost) == ["STALE"]
    assert alive.succeed(new) == ["OK"]


def test_a_message_that_failed_before_the_snapshot_has_another_number(alive: World) -> None:
    alive.publish("a")
    first = lease_one(alive)
    alive.fail(failure("a", lease_no=first.lease_no))
    alive.advance(10 * SECOND)
    alive.promote()
    data = snapshot(alive)
    lost = lease_one(alive)
    restored(alive, data)
    new = lease_one(alive)
    assert first.lease_no < lost.lease_no < new.lease_no
    assert alive.renew(lost) == ["STALE"]
    assert alive.lease(1).numbers == []
    assert alive.renew(new) == ["OK"]


def test_what_was_in_flight_before_keeps_its_lease(alive: World) -> None:
    alive.publish("a", "b")
    held = lease_one(alive)
    restored(alive, snapshot(alive))
    assert lease_one(alive).id == "b"
    assert alive.renew(held) == ["OK"]
    assert alive.succeed(held) == ["OK"]


def test_a_message_that_expired_on_the_lost_server_and_expires_here(alive: World) -> None:
    alive.publish("a")
    held = lease_one(alive)
    data = snapshot(alive)
    alive.advance(VISIBILITY_MS)
    alive.expire()
    lost = lease_one(alive)
    restored(alive, data)
    alive.expire()
    new = lease_one(alive)
    assert held.lease_no < lost.lease_no < new.lease_no
    assert alive.succeed(held, lost) == ["STALE", "STALE"]


def test_restored_twice_from_one_snapshot(alive: World) -> None:
    alive.publish("a")
    data = snapshot(alive)
    numbers = [lease_one(alive).lease_no]
    for _ in range(2):
        restored(alive, data)
        numbers.append(lease_one(alive).lease_no)
    assert numbers == sorted(set(numbers))


def test_a_receipt_of_an_id_s_first_life_is_stale_in_the_second(alive: World) -> None:
    alive.publish(prepared("order-7", "1", digest="d1"))
    old = lease_one(alive)
    assert alive.succeed(old) == ["OK"]
    alive.advance(HOUR + 1)
    alive.publish(prepared("order-7", "2", digest="d2"))
    new = lease_one(alive)
    assert (new.id, new.lease_no > old.lease_no) == ("order-7", True)
    assert alive.succeed(old) == ["STALE"]
    assert alive.succeed(new) == ["OK"]


def test_the_life_of_the_server_is_looked_at_once_in_ten_milliseconds(alive: World) -> None:
    alive.publish(*"abc")
    looked_at = []
    for _ in "abc":
        lease_one(alive)
        looked_at.append(int(alive.client.hget(alive.group().config, "verified")) - START_MS)
        alive.advance(5)
    assert looked_at == [0, 0, 10]


@pytest.mark.parametrize("settle", ["succeed", "fail"])
def test_leases_of_one_call_are_settled_by_the_number_they_share(alive: World, settle: str) -> None:
    alive.publish("a", "b")
    leased = alive.lease(2)
    (number,) = {number for number, _ in leased.numbers}
    assert number >= START_MS
    wrong = [Receipt(id_, number - 1) for id_ in leased.ids]
    assert alive.succeed(*wrong) == ["STALE", "STALE"]
    if settle == "succeed":
        assert alive.succeed(*(Receipt(id_, number) for id_ in leased.ids)) == ["OK", "OK"]
    else:
        failed = alive.fail(*(failure(id_, lease_no=number) for id_ in leased.ids))
        assert [one.verdict for one in failed] == ["OK", "OK"]


def test_where_too_much_is_in_flight_new_leases_get_entries(alive: World) -> None:
    for start in range(0, MANY + 2, 400):
        alive.publish(*(f"m{n}" for n in range(start, min(start + 400, MANY + 2))))
    held: list[Receipt] = []
    while len(held) < MANY:
        leased = alive.lease(min(500, MANY - len(held)))
        held += [Receipt(id_, no) for id_, (no, _) in zip(leased.ids, leased.numbers, strict=True)]
    restored(alive, snapshot(alive))
    new = lease_one(alive)
    assert new.lease_no > held[0].lease_no
    assert len(alive.client.hgetall(alive.group().attempts)) == 1
    assert alive.renew(*held[:3], new) == ["OK"] * 4
    assert alive.succeed(held[0], held[1]) == ["OK", "OK"]
    newest = lease_one(alive)  # now it is not too much
    assert newest.lease_no == new.lease_no
    assert len(alive.client.hgetall(alive.group().attempts)) == MANY - 2 + 1
    assert alive.renew(held[2], held[-1], new, newest) == ["OK"] * 4


@pytest.mark.parametrize("first_group", ["g", "h"])
def test_an_id_that_an_operator_freed_has_other_numbers_in_every_group(
    alive: World, first_group: str
) -> None:
    alive.subscribe("h")
    alive.publish(prepared("order-7", "1", digest="d1"))
    old = {group: alive.lease(1, group=group).numbers[0][0] for group in "gh"}
    (last_group,) = {"g", "h"} - {first_group}
    assert alive.succeed(Receipt("order-7", old[first_group]), group=first_group) == ["OK"]
    dead = failure("order-7", old[last_group], level=-1)
    assert alive.fail(dead, group=last_group)[0].dead
    assert alive.purge("order-7", group=last_group) == ["OK"]
    assert alive.publish(prepared("order-7", "2", digest="d2")).verdicts == ""
    for group in "gh":
        ((new, _),) = alive.lease(1, group=group).numbers
        assert new > old[group]
        late = Receipt("order-7", old[group])
        assert alive.succeed(late, group=group) == ["STALE"]
