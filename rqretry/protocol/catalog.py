"""The catalog's records, and their copies in the partitions: routes and group configurations.

The records are read in inspect.py.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rqretry.core.route import Route
from rqretry.protocol.command import MAX_BATCH, Command, Operation, batches, call, text
from rqretry.protocol.keys import GroupKeys, NamespaceKeys, PartitionKeys

Partition = tuple[str, int]
"""Its topic and number."""


def subscribe(keys: PartitionKeys, route: Route, here: str = "") -> Command[int | str]:
    """Install a route; the first group takes the backlog. Returns what is left of it.

    Where the server's data are of another incarnation than `here`, that is returned instead.
    """
    first = route.groups[0].name if route.groups else ""
    ordered = bool(route.groups) and route.groups[0].ordered
    return call(
        keys.group(first, 0).scripts,
        "subscribe",
        (
            here,
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
        _left,
    )


def configure(
    keys: GroupKeys, version: int, fields: Mapping[str, str | int | bytes], here: str = ""
) -> Command[int | str]:
    """Copy a group's configuration into a partition; newer wins. Returns 0, or as `subscribe`."""
    flat = [argument for pair in fields.items() for argument in pair]
    return call(keys.scripts, "configure", (here, version, *flat), _left)


def _left(reply: Any) -> int | str:
    return reply if isinstance(reply, int) else text(reply)


def copied(
    partitions: Iterable[Partition],
    copy: Callable[[Partition, str], Command[int | str]],
    again: Callable[[], Operation[Sequence[Partition]]],
) -> Operation[None]:
    """Copy what was read from the catalog to partitions.

    A server may have gone back to older data since then. So a partition takes a copy only from who
    names the incarnation of its data, and has read what is copied after it learnt that.

    Args:
        partitions: Each by its topic and number.
        copy: Makes the command for one of them, by its incarnation; it is done when that answers 0.
        again: Reads what is copied anew. Returns the partitions that there are by now.
    """
    rest, here = list(partitions), dict[Partition, str]()
    while rest:
        found: dict[Partition, int | str] = {}
        for some in batches(rest):
            left = yield [copy(partition, here.get(partition, "")) for partition in some]
            found |= zip(some, left, strict=True)
        others = {partition: other for partition, other in found.items() if isinstance(other, str)}
        here |= others
        rest = [partition for partition, more in found.items() if more != 0]
        if others:
            there = set((yield from again()))
            rest = [partition for partition in rest if partition in there]


def compare_and_set(
    keys: NamespaceKeys, records: str, name: str, old: str, new: str
) -> Command[bool]:
    """Replace a catalog record if it still is `old` ('' for a new one); delete it for ''."""
    return call(keys.scripts, "compare_and_set", (name, old, new), bool, records=records)
