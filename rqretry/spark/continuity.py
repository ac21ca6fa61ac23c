"""Whether a history has all that it should have (docs/decisions/0117).

Entries are numbered from 1 on, by the second part of their ids. So whoever knows which entry comes
next notices one that is missing, whatever took it away: the limit, a hand, a failover to a replica
that had less, a backup. A position names the next entry, as `Position.after` and `Histories.walk`
make it; number 0 is that of a time or of the beginning.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from rqretry.core.errors import show
from rqretry.protocol import history
from rqretry.protocol.history import Entry, Kept
from rqretry.spark.error_messages import DataLoss
from rqretry.spark.offsets import Bounds, Histories, TopicPartition
from rqretry.spark.position import Position

log = logging.getLogger("rqretry")

_CONTINUE = "; set failOnDataLoss to false to continue with what is left"


def name_of(partition: TopicPartition) -> str:
    """A history, for people."""
    topic, number = partition
    return f"the history of topic {show(topic)}, partition {number},"


def report_loss(sentence: str, *, fail: bool) -> None:
    """Something is not there that was to be read: raise DataLoss, or warn."""
    if fail:
        raise DataLoss(sentence + _CONTINUE)
    log.warning("data loss: %s", sentence)


def check_trimmed(partition: TopicPartition, position: Position, kept: Kept) -> None:
    """That nothing from this position on was dropped. Raises DataLoss."""
    lost = Position.parse(kept.lost or "0")
    if kept.lost and lost >= position._replace(item=0):
        known = position.number or position == Position()
        entries = lost.number - max(0, position.number - 1)
        count = f" ({entries} entries)" if known and entries > 0 else ""
        raise DataLoss(
            f"{name_of(partition)} was trimmed up to {kept.lost}{count} before it was read from"
            f" {position}: read it more often, or raise its limit with rqretry topic set"
            f" {partition[0]} --max-history-bytes N{_CONTINUE}"
        )


def check_range(
    histories: Histories, partition: TopicPartition, start: Position, known: Bounds
) -> None:
    """That a history is there as it was read, from where it is to be read on.

    Raises:
        DataLoss: It is not, and failOnDataLoss is set.
    """
    fail = histories.options.fail_on_data_loss
    if fail:
        check_trimmed(partition, start, known.kept)
    lost = Position.parse(known.kept.lost or "0")
    numbering = Numbering(partition, lost.number + 1, fail=fail)
    if start <= known.begin < known.end:
        numbering.comes(known.begin.number, known.begin.entry)
    numbering.expected = max(0, known.end.number - 1) + 1
    numbering.ends(known.kept.entries + 1)
    before = f"{start.ms}-{max(0, start.number - (start.item == 0))}"
    if start.number == 0 or start._replace(item=0) <= lost or before == known.kept.lost:
        return
    keys = histories.keys(partition)
    if not histories.store.run(history.entries(keys, start=before, end=start.entry, count=1)):
        report_loss(
            f"{name_of(partition)} has no entry {before}, behind which it is to be read on: the"
            " server has older data, as after a failover to a replica or from a backup, or the"
            " entry was removed",
            fail=fail,
        )


@dataclass(slots=True)
class Numbering:
    """The numbers of the entries that are read, one after the other.

    Attributes:
        partition: Whose they are.
        expected: The number that comes next.
        fail: Whether a gap is an error.
    """

    partition: TopicPartition
    expected: int
    fail: bool

    @classmethod
    def at(cls, histories: Histories, partition: TopicPartition, start: Position) -> "Numbering":
        """That of a read from a position."""
        keys, expected = histories.keys(partition), start.number
        if not expected:
            earlier = history.entry_before(keys, start.entry)
            before = histories.store.run(earlier) if start.ms else ""
            before = before or histories.store.run(history.kept(keys)).lost
            expected = Position.parse(before or "0").number + 1
        return cls(partition, expected, fail=histories.options.fail_on_data_loss)

    def check(self, page: Sequence[Entry]) -> None:
        """That a page of entries goes on where the last one ended. Raises DataLoss."""
        if not page:
            return
        first, last = (_number(page[at][0]) for at in (0, -1))
        if (first, last - first + 1) == (self.expected, len(page)):
            self.expected = last + 1
            return
        for name, _ in page:
            self.comes(_number(name), name.decode())

    def comes(self, number: int, entry: str) -> None:
        """An entry is there. Raises DataLoss if others should be before it."""
        missing, self.expected = number - self.expected, number + 1
        if missing > 0:
            report_loss(
                f"{name_of(self.partition)} lacks {missing} entries before {entry}: they were"
                " removed, or trimmed before they were read",
                fail=self.fail,
            )
        elif missing:
            report_loss(
                f"{name_of(self.partition)} was continued from older data: {entry} is its entry"
                f" {number}, and {-missing} entries that came before were lost, as after a failover"
                " to a replica or from a backup",
                fail=self.fail,
            )

    def ends(self, number: int) -> None:
        """The next one is that of this number. Raises DataLoss if there should be others."""
        if self.expected < number:
            report_loss(
                f"{name_of(self.partition)} lacks its last {number - self.expected} entries before"
                f" number {number}: they were removed",
                fail=self.fail,
            )


def _number(name: bytes) -> int:
    return int(name.partition(b"-")[2])
