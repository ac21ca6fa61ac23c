"""A call of a script as it went over the wire, and what is said when a promise is broken."""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tests.model.simulation.ledger import Place

NAMESPACE = "sim"
DATE = 1 / 2048
_PLACE = re.compile(r"\{([^{}]+):(\d+)\}:")


class Broken(AssertionError):
    """A promise is broken."""


def require(holds: object, recorded: str) -> None:
    """Raise Broken unless it holds."""
    if not holds:
        raise Broken(recorded)


class Call(NamedTuple):
    """One call of a script."""

    verb: str
    keys: Sequence[str]
    args: Sequence[Any]
    where: tuple[str, int] | None
    """The topic and partition it is about; None for the namespace."""

    @staticmethod
    def of(verb: str, request_parts: Sequence[Any]) -> "Call":
        """A request, read."""
        count = request_parts[2]
        found = _PLACE.search(request_parts[3])
        where = (found[1], int(found[2])) if found else None
        return Call(verb, request_parts[3 : 3 + count], request_parts[3 + count :], where)


def number_of(key: str) -> int:
    """The number of a key's partition."""
    found = _PLACE.search(key)
    assert found
    return int(found[2])


def spelled_out(call: Call, reply: Any) -> tuple[Call, Any]:
    """A settle with all of its words and verdicts; what all have in common is implied.

    Without the times of handlers, which nothing depends on.
    """
    if call.verb == "fail":
        return _fail_spelled_out(call, reply)
    if call.verb == "release":
        return call._replace(args=(*call.args[:3], *call.args[4:])), reply
    if call.verb != "succeed":
        return call, reply
    group, worker, strict, request_parts, lease_no, _, *rest = call.args
    if request_parts == 1:
        rest = [word for id_ in rest for word in (id_, lease_no)]
    verdicts = reply if isinstance(reply, Exception) else reply or [b"OK"] * (len(rest) // 2)
    return call._replace(args=(group, worker, strict, *rest)), verdicts


def _fail_spelled_out(call: Call, reply: Any) -> tuple[Call, Any]:
    """Each message with its lease number and record: 3 words, or 7."""
    group, worker, traces, request_parts, random, lease_no, shared, _, *rest = call.args
    first = 2 * traces + shared
    stated, records = rest[: 2 * traces], rest[2 * traces : first]
    rows = [rest[at : at + request_parts] for at in range(first, len(rest), request_parts)]
    if request_parts == 1:
        rows = [[id_, lease_no] for (id_,) in rows]
    if request_parts <= _ALIKE:
        rows = [[*row, 1] for row in rows]
    if shared:
        rows = [[*row[:-1], records[row[-1] - 1]] for row in rows]
    spelled = [word for row in rows for word in row]
    args = (group, worker, traces, max(request_parts, _ALIKE + 1), random, *stated, *spelled)
    if not isinstance(reply, Exception) and len(reply) == _ONE_VERDICT:
        reply = [reply[0]] * len(rows) + reply[1:]
    return call._replace(args=args), reply


_ALIKE = 2
"""Words of a message that says what all others of its call say."""
_ONE_VERDICT = 2
"""Words of an answer that is the same of all: the verdict, and the time."""
_COUNTED = {"lease": 5, "expire": 2, "promote": 1, "deliver": 2}
"""Where the answer says what was moved."""


def idle(verb: str, reply: Any) -> bool:
    """Whether a call says that it has changed nothing."""
    at = _COUNTED.get(verb)
    return at is not None and (len(reply) <= at or not reply[at])


class Reading:
    """What the whole namespace is like, by everything that was executed.

    Attributes:
        places: Each partition, by topic and number.
        decided: How each transaction was decided.
        blurred: A script of the namespace was cut, so that a decision may have been missed.
        now, wall: Logical time of the server in ms, and what its clock says.
        wrong: Its clock is wrong at times: what is due may be held back.
        asked: By group, the earliest time to which an operator sent it back, in ms.
        begins: By group, the time in the past at which it begins, in ms.
        owed: What a group is noted to owe in a partition, and what anybody is.
        listed: What a lane of a group holds in a partition.
    """

    def __init__(self) -> None:
        self.places: dict[tuple[str, int], Place] = {}
        self.decided: dict[str, str] = {}
        self.blurred = False
        self.now = self.wall = 0
        self.wrong = False
        self.asked: dict[str, int] = {}
        self.begins: dict[str, int] = {}
        self.owed: Callable[[int, Place, str], tuple[set[str], set[str]]]
        self.listed: Callable[[int, Place, str, str], set[str]]

    def time_of(self, due_ms: float) -> int:
        """What the time is for a due time: a date, which lacks a part of a ms, is the wall's."""
        return self.wall if due_ms % 1 == 1 - DATE else self.now

    def place(self, topic: str, number: int) -> Place:
        """One partition."""
        if (topic, number) not in self.places:
            self.places[topic, number] = Place(topic)
        return self.places[topic, number]
