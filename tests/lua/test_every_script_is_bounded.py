"""No call of any script takes long: each is run on the worst data that its row knows."""

import pytest

from rqretry.protocol.signatures import SIGNATURES
from tests.conftest import ServerOf
from tests.lua.conftest import world_on
from tests.lua.test_worst_cases import bounded, measured
from tests.lua.worst_data import FULL, MANY
from tests.lua.worst_data_operators import WORST, kept_again
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
