"""Taking back a message that was published with a delay."""

from rqretry.catalog.catalog import Catalog
from rqretry.core.envelope import decode
from rqretry.core.errors import CodecError, MessageNotFound, show
from rqretry.core.limits import check_message_id, check_topic
from rqretry.core.message_id import partition_of
from rqretry.protocol import operate
from rqretry.protocol.command import Operation
from rqretry.protocol.inspect import read_body
from rqretry.protocol.keys import PartitionKeys


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
    if late:
        return False
    raise MessageNotFound(
        f"no message {show(id_)} is stored in namespace {show(catalog.namespace)}: it was committed"
        " by every group, recalled, or never published here"
    )


def _tag(keys: PartitionKeys, id_: str) -> Operation[str]:
    """The tag that a message waits under; bodies never change, so it may be read beforehand."""
    data: bytes | None = yield read_body(keys, id_)
    if data is None:
        return ""
    try:
        return decode(data).tag or ""
    except CodecError:
        return ""
