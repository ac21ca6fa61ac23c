"""What is kept for a time: ids that callers gave, and dead letters where an operator says so."""

from collections.abc import Iterable

from rqretry.catalog.catalog import Catalog
from rqretry.core.errors import GroupNotFound
from rqretry.protocol.command import MAX_BATCH, Operation, batches
from rqretry.protocol.keys import GroupKeys, PartitionKeys
from rqretry.protocol.maintain import sweep
from rqretry.protocol.operate import GroupPage, purge, scan_group

SWEEP_EVERY_S = 60.0
RETENTION = "retention"
"""Who purges dead letters, as the history has it."""


def forget_old(
    catalog: Catalog, partitions: Iterable[PartitionKeys], groups: Iterable[GroupKeys]
) -> Operation[int]:
    """Forget ids that callers gave an hour ago, and purge dead letters past their retention.

    Args:
        catalog: The catalog.
        partitions: Whose ids to forget, one batch of each; in the first steps.
        groups: Groups in partitions; those that keep dead letters for ever cost one read in all.

    Returns:
        How many dead letters were purged.
    """
    for batch in batches(list(partitions)):
        yield [sweep(keys) for keys in batch]
    kept: dict[str, int] = {}
    gone = 0
    for keys in groups:
        if keys.source:  # the group whose dead letters they are purges them
            continue
        if keys.group not in kept:
            kept[keys.group] = yield from _retention(catalog, keys.group)
        if kept[keys.group]:
            gone += yield from _purge_old(keys, kept[keys.group])
    return gone


def _retention(catalog: Catalog, group: str) -> Operation[int]:
    try:
        record = yield from catalog.groups.get(group)
    except GroupNotFound:  # it was deleted meanwhile
        return 0
    return record.dlq_retention_ms


def _purge_old(keys: GroupKeys, retention_ms: int) -> Operation[int]:
    gone = 0
    while True:
        page: GroupPage = yield scan_group(keys, keys.dead, in_list=False, offset=0)
        before = page.now_ms - retention_ms
        rows = zip(page.ids, page.due_ms, strict=True)
        old = [id_ for id_, since_ms in rows if since_ms is not None and since_ms <= before]
        if not old:
            return gone
        verdicts: list[bytes] = yield purge(keys, old, actor=RETENTION)
        gone += verdicts.count(b"OK")
        if len(old) < MAX_BATCH:
            return gone
