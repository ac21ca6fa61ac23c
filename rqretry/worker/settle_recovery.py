"""What the history says of a result whose answer does not: was it told before?

A result is told again where the answer was lost, and is refused then (decisions 2): because it was
taken the first time, or because the lease had ended. Only the history knows which.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rqretry.protocol.command import Operation
from rqretry.protocol.history import Kept, kept
from rqretry.protocol.inspect import recent_history
from rqretry.protocol.keys import GroupKeys
from rqretry.protocol.lease import Failed, Failure, outcome
from rqretry.worker.leases import Delivery

_PAGE, _PAGES = 100, 200
SLACK_MS = 2000
"""How far a client's idea of the server's time may be off."""
_TAKEN = Failed("OK")

_VERBS = {b"succeed": "succeed", b"fail": "fail"}

Result = tuple[str, str, int]
"""Verb, message and attempt."""


class Doubt(NamedTuple):
    """A result that was refused, or never answered."""

    delivery: Delivery
    failure: Failure | None
    """None: it succeeded."""
    told_at: float
    """Monotonic time of the first call that told it, at the latest."""
    gone: bool
    """The message is: it is believed to be the result's doing where the history has no more."""

    @property
    def result(self) -> Result:
        """How the history names it."""
        verb = "succeed" if self.failure is None else "fail"
        return verb, self.delivery.id, self.delivery.attempt


class Recollection(NamedTuple):
    """What the history has of some results.

    Attributes:
        taken: Those that were, each with what became of the message.
        whole: The others were not; else the history does not reach back that far.
    """

    taken: dict[Result, Failed]
    whole: bool


def recollect(
    keys: GroupKeys, doubts: Sequence[Doubt], worker: str, since_ms: int
) -> Operation[Recollection]:
    """Look for results that this worker has told since a server time, the newest first.

    Args:
        keys: Of the group.
        doubts: The results.
        worker: Who told them.
        since_ms: Milliseconds since the epoch, before the first call.
    """
    wanted = {doubt.result for doubt in doubts}
    by = keys.group.encode(), worker.encode()
    taken: dict[Result, Failed] = {}
    end = "+"
    for _ in range(_PAGES):
        page: list[tuple[str, dict[str, bytes]]]
        page = yield recent_history(keys.partition, end=end, count=_PAGE)
        for entry_id, fields in page:
            if int(entry_id.partition("-")[0]) < since_ms:
                return Recollection(taken, whole=True)
            if fields["e"] in _VERBS and (fields["g"], fields["w"]) == by:
                taken |= {result: said for result, said in _results(fields) if result in wanted}
        if len(taken) == len(wanted):
            return Recollection(taken, whole=True)
        if len(page) < _PAGE:
            left_out: Kept = yield kept(keys.partition)
            return Recollection(taken, whole=not left_out.lost)
        end = f"({page[-1][0]}"
    return Recollection(taken, whole=False)


def _results(fields: dict[str, bytes]) -> Iterator[tuple[Result, Failed]]:
    """Of an entry of either verb."""
    verb, notes = _VERBS[fields["e"]], fields["d"].split()
    for index, id_ in enumerate(fields["i"].decode().split(" ")):
        if verb == "fail":
            said = outcome(notes[index])
            yield (verb, id_, said.attempt), said
        else:
            yield (verb, id_, int(notes[index]) if notes else 1), _TAKEN
