"""Taking back a message that was published with a delay."""

from rqretry.catalog.catalog import Catalog
from rqretry.core.envelope import decode
from rqretry.core.errors import CodecError, ConfigError, MessageNotFound, show
from rqretry.core.limits import check_message_id, check_topic
from rqretry.core.message_id import born_ms, partition_of
from rqretry.protocol import operate
from rqretry.protocol.command import Operation
from rqretry.protocol.inspect import entries_of, read_body
from rqretry.protocol.keys import PartitionKeys

_PAGES, _LOOK_BACK_MS = 10, 1000
"""How much of a partition's history is read for a message that is gone, from when it was made."""


def recall(catalog: Catalog, id_: str, topic: str | None, *, worker: str) -> Operation[bool]:
    """Scheduled and not due to gone; see Client.recall."""
    checked = check_message_id(id_)
    if topic is None:
        records = yield from catalog.topics.all()
    else:
        records = [(yield from catalog.store.topic(check_topic(topic)))]
    # First where its id puts it; elsewhere if partitions were added since.
    likely = [(r.name, partition_of(checked, r.partitions)) for r in records]
    partitions = [*likely, *((r.name, n) for r in records for n in range(r.partitions))]
    late = False
    for name, partition in dict.fromkeys(partitions):
        keys = catalog.partition(name, partition)
        tag = yield from _tag(keys, checked)
        verdict = yield operate.recall(keys, checked, worker=worker, tag=tag)
        if verdict == "OK":
            return True
        late = late or verdict == "LATE"
    for name, partition in dict.fromkeys([] if late else likely):
        late = late or (yield from _was_delivered(catalog.partition(name, partition), checked))
    if late:
        return False
    raise MessageNotFound(
        f"no message {show(id_)} is stored in namespace {show(catalog.namespace)}: it was recalled"
        " or purged, never published here, or committed longer ago than the history goes back"
    )


def _was_delivered(keys: PartitionKeys, id_: str) -> Operation[bool]:
    """Whether the history has a lease of a message that is gone; False where it may not be read."""
    try:
        entries = yield from entries_of(
            keys, id_, str(max(0, (born_ms(id_) or 0) - _LOOK_BACK_MS)), pages=_PAGES
        )
    except ConfigError:
        return False
    return any(fields["e"] == b"lease" for _, fields in entries)


def _tag(keys: PartitionKeys, id_: str) -> Operation[str]:
    """The tag that a message waits under; bodies never change, so it may be read beforehand."""
    data: bytes | None = yield read_body(keys, id_)
    if data is None:
        return ""
    try:
        return decode(data).tag or ""
    except CodecError:
        return ""
