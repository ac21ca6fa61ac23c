"""Upkeep of one partition that needs more than one step: deliver what is scheduled and due."""

from rqretry.catalog import Catalog
from rqretry.command import MAX_BATCH, Operation
from rqretry.commands.producing import deliver

_ROUTE_CHANGES = 50


def deliver_due(catalog: Catalog, topic: str, partition: int, worker: str) -> Operation[int | None]:
    """Scheduled and due to ready, for every group of the route.

    Returns:
        Milliseconds until the next scheduled message is due; None for none.
    """
    yield from catalog.topic(topic)
    for _ in range(_ROUTE_CHANGES):
        keys, route = catalog.partition(topic, partition), catalog.route(topic, partition)
        _, _, next_ms, newer = yield deliver(keys, route, worker=worker, limit=MAX_BATCH)
        if newer is None:
            return next_ms  # type: ignore[no-any-return]
        yield from catalog.note_route(topic, partition, newer)
    return None
