"""No call of any script takes long: each is run on the worst data that its row knows."""

from dataclasses import replace

import pytest

from rqretry.protocol import inspect
from rqretry.protocol.signatures import SIGNATURES
from tests.conftest import ServerOf
from tests.lua.conftest import world_on
from tests.lua.crash_cases_kept import keep
from tests.lua.test_worst_cases import bounded, measured
from tests.lua.worst_data import FULL, MANY, leased
from tests.lua.worst_data_operators import WORST, kept_again
from tests.support.builders import first
from tests.support.world import World


@pytest.fixture
def world(server_of: ServerOf) -> World:
    """On 6.2, whose scripts may count even where they only read."""
    found = world_on(server_of, "redis-6.2", measured())
    found.damaged = True
    return found


def test_each_script_has_a_row() -> None:
    assert WORST.keys() == SIGNATURES.keys()


@pytest.mark.parametrize("script", sorted(SIGNATURES))
def test_no_call_takes_long(world: World, script: str) -> None:
    command = WORST[script](world)
    assert command.verb == script
    with bounded(world):
        world.run(command)


def test_no_batch_takes_long_whose_bodies_are_kept(world: World) -> None:
    """And that were kept in an earlier life of their ids, among very many others."""
    command = kept_again(world)
    with bounded(world):
        world.run(command)
    assert world.client.zcard(world.group().consumed) == MANY + FULL


def test_what_is_kept_is_committed_in_calls_of_half_the_size(world: World) -> None:
    keep(world, keep_bytes=2**40)
    names = leased(world)
    verdicts = world.succeed(*first(*names))
    assert (verdicts.count("OK"), verdicts.count("LATER")) == (FULL // 2, FULL // 2)
    assert set(world.succeed(*first(*names[FULL // 2 :]))) == {"OK"}


def test_a_message_is_searched_in_so_many_entries_of_all_lists_together(world: World) -> None:
    keys = world.subscribe()
    for number, key in enumerate((keys.retry, world.keys.backlog, keys.ready)):
        world.client.rpush(key, *(f"{number}{at}" for at in range(4)))
    peek = world.run(inspect.peek(keys, "23"))
    assert (peek.in_retry, peek.in_backlog, peek.in_ready) == (None, None, 3)
    for most, found in ((12, 3), (11, None), (8, None), (1, None)):
        fewer = replace(inspect.peek(keys, "23"), args=("23", most))
        assert world.run(fewer).in_ready == found
