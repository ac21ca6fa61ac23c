"""Upkeep of one partition that needs more than one step: deliver what is scheduled and due."""

from rqretry.catalog.catalog import Catalog
from rqretry.protocol.command import MAX_BATCH, Command, Operation
from rqretry.protocol.publish import deliver, due_members

_ROUTE_CHANGES = 50


def deliver_due(catalog: Catalog, topic: str, partition: int, worker: str) -> Operation[int | None]:
    """Scheduled and due to ready, for every group of the route.

    Returns:
        Milliseconds until the next scheduled message is due; None for none.
    """
    yield from catalog.topics.get(topic)
    for _ in range(_ROUTE_CHANGES):
        keys, route = catalog.partition(topic, partition), catalog.topics.route(topic, partition)
        members: list[str] = []
        next_ms: int | None
        if route.filtered:
            look: Command[tuple[list[str], int | None]] = due_members(keys, limit=MAX_BATCH)
            members, next_ms = yield look
            if not members:
                return next_ms
        _, _, next_ms, newer = yield deliver(
            keys, route, worker=worker, limit=MAX_BATCH, members=members
        )
        if newer is None:
            return next_ms
        yield from catalog.topics.note_route(topic, partition, newer)
    return None
