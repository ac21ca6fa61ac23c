"""Find out from the history whether a result without a clear answer was stored.

A result is reported again where the answer was lost, and is rejected then (docs/decisions/0027):
because it was taken the first time, or because the lease had ended. Only the history knows which.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from rqretry.protocol.command import Operation
from rqretry.protocol.history import Kept, kept
from rqretry.protocol.inspect import recent_history
from rqretry.protocol.keys import GroupKeys
from rqretry.protocol.lease import Failed, outcome

_PAGE, _PAGES = 100, 200
SLACK_MS = 2000
"""How far a client's idea of the server's time may be off."""
_TAKEN = Failed("OK")

_VERBS = {b"succeed": "succeed", b"fail": "fail"}

Result = tuple[str, str, int]
"""Verb, message and attempt."""


class Recovered(NamedTuple):
    """What the history has of some results.

    Attributes:
        taken: Those that were, each with what became of the message.
        whole: The others were not; else the history does not reach back that far.
    """

    taken: dict[Result, Failed]
    whole: bool


def recover_results(
    keys: GroupKeys, wanted: AbstractSet[Result], worker: str, since_ms: int
) -> Operation[Recovered]:
    """Look for results that this worker has reported since a server time, the newest first.

    Args:
        keys: Of the group.
        wanted: The results.
        worker: Who reported them.
        since_ms: Milliseconds since the epoch, before the first call.
    """
    by = keys.group.encode(), worker.encode()
    taken: dict[Result, Failed] = {}
    end = "+"
    for _ in range(_PAGES):
        page: list[tuple[str, dict[str, bytes]]]
        page = yield recent_history(keys.partition, end=end, count=_PAGE)
        for entry_id, fields in page:
            if int(entry_id.partition("-")[0]) < since_ms:
                return Recovered(taken, whole=True)
            if fields["e"] in _VERBS and (fields["g"], fields["w"]) == by:
                taken |= {key: ended for key, ended in _results(fields) if key in wanted}
        if len(taken) == len(wanted):
            return Recovered(taken, whole=True)
        if len(page) < _PAGE:
            left_out: Kept = yield kept(keys.partition)
            return Recovered(taken, whole=not left_out.lost)
        end = f"({page[-1][0]}"
    return Recovered(taken, whole=False)


def _results(fields: dict[str, bytes]) -> Iterator[tuple[Result, Failed]]:
    """The results in an entry of the history."""
    verb, notes = _VERBS[fields["e"]], fields["d"].split()
    for index, id_ in enumerate(fields["i"].decode().split(" ")):
        if verb == "fail":
            ended = outcome(notes[index])
            yield (verb, id_, ended.attempt), ended
        else:
            yield (verb, id_, int(notes[index]) if notes else 1), _TAKEN
