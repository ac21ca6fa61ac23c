"""Calls that clients repeat because no answer came: they are answered as the first time.

The history of a partition knows what a client did with a message (docs/decisions/0096).
"""

from collections.abc import Iterable

from rqretry.consumer.simple_operations import SimpleOperations
from rqretry.core.message import ReceiptHandle
from rqretry.protocol.command import Operation
from rqretry.protocol.inspect import recent_history
from rqretry.protocol.keys import GroupKeys

REPEATED_MS = 20_000
"""How long after it a call may be repeated: less than the lease of a push consumer, so that what
a client reported meanwhile was about the same lease."""
_PAGE, _PAGES = 100, 20
ACK, FAIL, CHANGE = "succeed", "fail", "change"


def done_before(
    operations: SimpleOperations, verb: str, handles: Iterable[ReceiptHandle]
) -> Operation[set[ReceiptHandle]]:
    """Those on which this client has done this already, by the history of their partitions."""
    since_ms = (yield from operations.catalog.store.now_ms()) - REPEATED_MS
    here: dict[GroupKeys, dict[str, ReceiptHandle]] = {}
    for handle in handles:
        keys = operations.catalog.group_keys(handle.topic, handle.partition, handle.group)
        here.setdefault(keys, {})[handle.id] = handle
    found = set[ReceiptHandle]()
    for keys, by_id in here.items():
        ids = yield from _ids_in_history(keys, verb, operations.worker, {*by_id}, since_ms)
        found |= {by_id[id_] for id_ in ids}
    return found


def _ids_in_history(
    keys: GroupKeys, verb: str, worker: str, wanted: set[str], since_ms: int
) -> Operation[set[str]]:
    group, by, end = keys.group.encode(), (verb.encode(), worker.encode()), "+"
    found = set[str]()
    for _ in range(_PAGES):
        page = yield recent_history(keys.partition, end=end, count=_PAGE)
        for entry_id, fields in page:
            if int(entry_id.partition("-")[0]) < since_ms or not wanted:
                return found
            if fields["g"] != group:
                continue
            ids = wanted.intersection(fields["i"].decode().split(" "))
            own = (fields["e"], fields["w"]) == by
            found |= ids if own else set()
            if own or verb == CHANGE:  # a lease that another one has followed is over
                wanted -= ids
        if len(page) < _PAGE:
            break
        end = f"({page[-1][0]}"
    return found
