"""Taking back a message that was published with a delay."""

from rqretry.catalog import Catalog
from rqretry.command import Operation
from rqretry.commands import moving
from rqretry.errors import MessageNotFound, show
from rqretry.ids import partition_of
from rqretry.limits import check_message_id, check_topic


def recall(catalog: Catalog, id_: str, topic: str | None, *, worker: str) -> Operation[bool]:
    """Scheduled and not due to gone; see Client.recall."""
    checked = check_message_id(id_)
    if topic is None:
        records = yield from catalog.topics()
    else:
        records = [(yield from catalog.refreshed(check_topic(topic)))]
    # Where its id says it should be first; elsewhere if partitions were added since.
    likely = [(r.name, partition_of(checked, r.partitions)) for r in records]
    places = [*likely, *((r.name, n) for r in records for n in range(r.partitions))]
    late = False
    for name, partition in dict.fromkeys(places):
        verdict = yield moving.recall(catalog.partition(name, partition), checked, worker=worker)
        if verdict == "OK":
            return True
        late = late or verdict == "LATE"
    if late:
        return False
    raise MessageNotFound(
        f"no message {show(id_)} is stored in namespace {show(catalog.namespace)}: it was committed"
        " by every group, recalled, or never published here"
    )
