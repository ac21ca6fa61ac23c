"""Reads what the server executed, call by call, and says whether the answer was allowed.

Every request of the run comes by here in the order of its execution, whoever sent it and whether or
not anybody got the reply. So the model knows the truth, and each answer has to agree with it: a
receipt that is over changes nothing, a repeated publish is answered as it was, one lease is live.
"""

from collections.abc import Callable, Sequence
from typing import Any

from rqretry.core.route import Route
from tests.model.simulation.calls import Call
from tests.model.simulation.ledger import Place
from tests.model.simulation.reading_leases import Leases
from tests.model.simulation.reading_publishes import Publishes
from tests.model.simulation.slots import Slots


class Journal(Publishes, Leases):
    """All of it."""

    def __init__(self, turns: int, slots: Slots) -> None:
        super().__init__()
        self.turns = turns
        self.slots = slots
        self._readers: dict[str, Callable[[Place, Sequence[Any], Sequence[Any], Any], None]] = {
            name.removeprefix("_do_"): getattr(self, name)
            for name in dir(self)
            if name.startswith("_do_")
        }

    def read(self, call: Call, reply: Any, now_ms: int, wall_ms: int) -> bool:
        """One executed script; whether the model of its partition has changed.

        Raises:
            Broken: The answer is not what was promised.
        """
        self.now, self.wall = now_ms, wall_ms
        if call.verb == "decide":
            self.decide(call.args, reply)
        elif call.verb == "compare_and_set":
            self.slots.defined(call.keys, call.args, reply)
        reader = self._readers.get(call.verb)
        if call.where is None or reader is None:
            return False
        reader(self.place(*call.where), call.keys, call.args, reply)
        return True

    def knows(self, call: Call) -> bool:
        """Whether the model has something to say about it."""
        return call.verb in self._readers

    def follow(self, place: Place, call: Call, reply: Any) -> None:
        """As far as the model is still needed of a partition that is only observed."""
        if call.verb == "subscribe" and not isinstance(reply, bytes):  # of this incarnation
            place.install(Route.decode(int(call.args[1]), call.args[2]))
        elif call.verb == "configure":
            place.settings_of(call.keys[1].split(":")[-2])
