"""Replayable publishing, without I/O: for tasks that start again from their first row.

A task that is run again (a retry, a speculative twin, a restarted query) sends the same rows in the
same order, cut into the same chunks. Its lane is named after the task, its ids are made of the lane
and the row, and its checksums are chained, so that one of them answers for every chunk before it. A
chunk that the partition knows already is skipped, the last one it knows is compared, and what comes
after it is published (docs/decisions/0002-publishing-lanes.md). A chunk may be sent before the one
in front of it is answered (transport/pipeline.py); it names what the lane must hold by then, and
after a failure nothing more is published.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rqretry.core.envelope import checksum
from rqretry.core.errors import ConfigError, StoreUnavailable, show
from rqretry.producer.lane import Call, Publishing
from rqretry.protocol.command import Operation, Pause
from rqretry.protocol.history import read_lanes
from rqretry.protocol.keys import PartitionKeys
from rqretry.protocol.publish import Front, Prepared, ids_of

LANE_TTL_MS = 7 * 86_400_000
"""How long a partition remembers what a task has published."""
EPOCH_CALLS = 1_000_000
"""The most calls of one lane in one epoch; numbers of calls grow from epoch to epoch."""


@dataclass(slots=True)
class ReplayableLane:
    """One task's session with one partition, in one epoch.

    Attributes:
        topic, partition: Where it leads.
        producer: The lane's name, the same whenever the task is run.
        epoch: Which run of the task's query; 0 for a batch job.
        sent: Messages that this attempt has published.
        known: Messages that an earlier attempt has published.
    """

    topic: str
    partition: int
    producer: str
    epoch: int
    sent: int = 0
    known: int = 0
    calls: int = 0
    chain: str = field(default="-")
    closed: bool = False
    """The epoch was done before: nothing more may be published in it."""
    last: tuple[int, str] | None = None
    """Number and checksum of the lane's last call, as far as this attempt knows."""
    under_way: str = ""
    """What the partition keeps of the newest call once it is done; '' if none is under way."""
    failed: bool = False
    """A call was not done, or nobody knows: what comes behind it must not be published."""

    @property
    def seq(self) -> int:
        """The number of the newest call."""
        return (self.epoch + 1) * EPOCH_CALLS + self.calls


def replay(
    publishing: Publishing,
    lane: ReplayableLane,
    messages: Sequence[Prepared],
    contents: Sequence[bytes],
) -> Operation[bool]:
    """Publish the next chunk of a lane, unless it was published before: whether this attempt did.

    Args:
        publishing: Where to.
        lane: The lane.
        messages: The chunk.
        contents: What of each must be the same when it is published again.

    Raises:
        ConfigError: Other messages were published in its place: the plan has changed.
        AmbiguousResult: It may have happened; run the task again.
        StoreUnavailable, QueueFull: Nothing was stored.
    """
    lane.calls += 1
    lane.chain = checksum([lane.chain, *ids_of(messages), *contents])
    call = _call(lane, messages, lane.chain)
    try:
        front = yield from _in_front(publishing, lane, messages)
        lane.under_way = record = f"{call.seq} {call.checksum}"
        added = yield from _replayed(publishing, lane, call, front)
    except BaseException:
        lane.failed = True
        raise
    if lane.under_way == record:
        lane.under_way = ""
    if added:
        lane.sent += len(messages)
    else:
        lane.known += len(messages)
    return added


def _in_front(
    publishing: Publishing, lane: ReplayableLane, messages: Sequence[Prepared]
) -> Operation[Front | None]:
    """The call that has no answer yet; what cannot depend on it waits until it has one."""
    if not lane.under_way:
        return None
    if publishing.may_be_ahead(lane.topic, lane.partition, messages):
        return Front(lane.producer, lane.under_way)
    yield Pause(0)
    return None


def _replayed(
    publishing: Publishing, lane: ReplayableLane, call: Call, front: Front | None
) -> Operation[bool]:
    """Whether this attempt has published it, and none before."""
    while True:
        if lane.failed:
            raise StoreUnavailable(f"{lane.producer}: what comes before this was not published")
        if lane.last is None:
            yield from read_last(publishing, [lane])
        if _is_known(lane, call):
            return False
        if lane.closed:
            raise _changed(lane)
        answer = yield from publishing.call(call, front)
        if answer.status not in {"LANE_CONFLICT", "LANE_GAP"}:
            lane.last = (call.seq, call.checksum)
            return answer.status != "DUPLICATE"
        if answer.status == "LANE_CONFLICT":
            lane.last = None  # a twin of this task was faster
        front = None  # by now the call in front is settled


def read_last(publishing: Publishing, lanes: Sequence[ReplayableLane]) -> Operation[None]:
    """Find out how far each lane has come, in one round trip."""
    found = yield [read_lanes(_keys(publishing, lane), [lane.producer]) for lane in lanes]
    for lane, (last,) in zip(lanes, found, strict=True):
        lane.last = last


def check_complete(publishing: Publishing, lanes: Sequence[ReplayableLane]) -> Operation[None]:
    """After a task's last chunk: no lane of it may hold more than the task has sent.

    Raises:
        ConfigError: An earlier run of the task had more rows, or others: the plan has changed.
    """
    yield from read_last(publishing, lanes)
    for lane in lanes:
        seq, chain = lane.last or (0, "")
        begun = seq > (lane.epoch + 1) * EPOCH_CALLS
        if begun and (seq, chain) != (lane.seq, lane.chain):
            raise _changed(lane)


def is_closed(publishing: Publishing, mark: ReplayableLane) -> Operation[bool]:
    """Whether an epoch was done before; `mark` is the lane of its `note`."""
    ((seq, _),) = yield read_lanes(_keys(publishing, mark), [mark.producer])
    return bool(seq > (mark.epoch + 1) * EPOCH_CALLS)


def note(publishing: Publishing, mark: ReplayableLane, plan: str) -> Operation[None]:
    """Note that an epoch has begun, or is done, and by what plan.

    Raises:
        ConfigError: Another plan was noted before, or a later epoch.
    """
    mark.calls = 1
    answer = yield from publishing.call(_call(mark, (), checksum([plan.encode()])))
    if answer.status == "LANE_CONFLICT":
        raise _changed(mark)


def _call(lane: ReplayableLane, messages: Sequence[Prepared], checksum: str) -> Call:
    where = (lane.topic, lane.partition, lane.producer, lane.seq)
    return Call(*where, messages, checksum, LANE_TTL_MS)


def _keys(publishing: Publishing, lane: ReplayableLane) -> PartitionKeys:
    return publishing.catalog.partition(lane.topic, lane.partition)


def _is_known(lane: ReplayableLane, call: Call) -> bool:
    seq, chain = lane.last or (0, "")
    if seq == call.seq and chain != call.checksum:
        raise _changed(lane)
    return seq >= call.seq


def _changed(lane: ReplayableLane) -> ConfigError:
    return ConfigError(
        f"{lane.producer} has published other rows to topic {show(lane.topic)} before: its input or"
        " its plan has changed under it (the number of partitions, or the order of rows), and"
        " nothing more was published; run it with the plan it had, write with an idColumn, or give"
        " the job another name"
    )
