"""Clients of the processes of a run."""

from rqretry.client import AsyncClient
from rqretry.core.parts import parts_of
from tests.model.simulation.calls import NAMESPACE
from tests.model.simulation.loop import Process
from tests.model.simulation.network import store_of
from tests.model.simulation.world import World


def client_of(world: World, process: Process, levels: str | None = None) -> AsyncClient:
    """A client of a process."""
    store = store_of(world.network, process, world.url, world.plan.repeats_s)
    client = AsyncClient(str(world.url), namespace=NAMESPACE, delay_levels=levels)
    parts_of(client).use(store)
    return client
