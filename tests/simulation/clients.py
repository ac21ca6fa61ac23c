"""Clients of the processes of a run."""

from rqretry.client import AsyncClient
from tests.simulation.calls import NAMESPACE
from tests.simulation.loop import Process
from tests.simulation.network import store_of
from tests.simulation.world import World


def client_of(world: World, process: Process, levels: str | None = None) -> AsyncClient:
    """A client of a process."""
    store = store_of(world.network, process, world.url, world.plan.repeats_s)
    return AsyncClient(str(world.url), namespace=NAMESPACE, delay_levels=levels, store=store)
