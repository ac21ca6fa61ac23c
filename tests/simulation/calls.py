"""A call of a script as it went over the wire, and what is said when a promise is broken."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.simulation.ledger import Place

NAMESPACE = "sim"
_PLACE = re.compile(r"\{([^{}]+):(\d+)\}:")


class Broken(AssertionError):
    """A promise is broken."""


def require(holds: object, said: str) -> None:
    """Raise Broken unless it holds."""
    if not holds:
        raise Broken(said)


class Call(NamedTuple):
    """One call of a script."""

    verb: str
    keys: Sequence[str]
    args: Sequence[Any]
    where: tuple[str, int] | None
    """The topic and partition it is about; None for the namespace."""

    @staticmethod
    def of(verb: str, words: Sequence[Any]) -> "Call":
        """A request, read."""
        count = words[2]
        found = _PLACE.search(words[3])
        where = (found[1], int(found[2])) if found else None
        return Call(verb, words[3 : 3 + count], words[3 + count :], where)


def spelled_out(call: Call, reply: Any) -> tuple[Call, Any]:
    """A succeed with all of its receipts and verdicts; first leases and successes are implied."""
    if call.verb != "succeed":
        return call, reply
    group, worker, strict, words, *rest = call.args
    if words == 1:
        rest = [word for id_ in rest for word in (id_, 1)]
    verdicts = reply if isinstance(reply, Exception) else reply or [b"OK"] * (len(rest) // 2)
    return call._replace(args=(group, worker, strict, *rest)), verdicts


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
        now: Server time in ms.
    """

    def __init__(self) -> None:
        self.places: dict[tuple[str, int], Place] = {}
        self.decided: dict[str, str] = {}
        self.blurred = False
        self.now = 0

    def place(self, topic: str, number: int) -> Place:
        """One partition."""
        if (topic, number) not in self.places:
            self.places[topic, number] = Place(topic)
        return self.places[topic, number]
