"""The catalog's records, and their copies in the partitions: routes and group configurations.

The records are read in inspect.py.
"""

from collections.abc import Mapping

from rqretry.core.route import Route
from rqretry.protocol.command import MAX_BATCH, Command, call
from rqretry.protocol.keys import GroupKeys, NamespaceKeys, PartitionKeys


def subscribe(keys: PartitionKeys, route: Route) -> Command[int]:
    """Install a route; the first group takes the backlog. Returns what is left of it."""
    first = route.groups[0].name if route.groups else ""
    ordered = bool(route.groups) and route.groups[0].ordered
    return call(
        keys.group(first, 0).scripts,
        "subscribe",
        (
            route.version,
            route.encode(),
            first,
            MAX_BATCH,
            route.max_messages,
            int(ordered),
            route.history_bytes,
            route.history_ms,
            route.keep_ms,
            route.keep_bytes,
            int(route.queued),
        ),
        int,
    )


def configure(
    keys: GroupKeys, version: int, fields: Mapping[str, str | int | bytes]
) -> Command[int]:
    """Copy a group's configuration into a partition; newer wins."""
    flat = [argument for pair in fields.items() for argument in pair]
    return call(keys.scripts, "configure", (version, *flat), int)


def compare_and_set(
    keys: NamespaceKeys, records: str, name: str, old: str, new: str
) -> Command[bool]:
    """Replace a catalog record if it still is `old` ('' for a new one); delete it for ''."""
    return call(keys.scripts, "compare_and_set", (name, old, new), bool, records=records)
