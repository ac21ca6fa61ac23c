"""What simple consumers are promised: every delivery counts, and none waits for ever."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rqretry.core.failure_record import BY_HAND, latest, read_record
from tests.model.model import DEAD, READY, RETRY
from tests.model.simulation.calls import require
from tests.model.simulation.ledger import Ledger, Place
from tests.model.simulation.plans import MAX_POSTPONES

MOST_AT_ONCE = 4
"""Messages of one receive."""
_LINES = 19
"""Of a failure record: what came first and what came last."""
_CAUSES = {"expired", "given_back"}


def begins(ledger: Ledger, id_: str, attempt: int) -> None:
    """A message is delivered as this attempt. Raises Broken."""
    ledger.counted[id_] += 1
    made = ledger.counted[id_]
    require(made == attempt, f"{id_}: delivery {made} of those that count is attempt {attempt}")


def is_released(ledger: Ledger, id_: str, *, bounded: bool) -> None:
    """It is given back uncounted. Raises Broken."""
    ledger.counted[id_] -= 1
    ledger.released[id_] += bounded
    times = ledger.released[id_]
    require(times <= MAX_POSTPONES, f"{id_} is released {times} times")


def check_deaths(ledger: Ledger, records: Mapping[str, str]) -> None:
    """Each dead letter has used up its attempts, and has a record of each. Raises Broken."""
    for id_, one in ledger.leases.items():
        if one.place != DEAD or not ledger.counted[id_]:
            continue
        made = ledger.counted[id_]
        lines = read_record(records.get(id_, ""))
        errors = latest(lines)
        by_hand = bool(errors) and errors[-1].cause == BY_HAND  # an operator did not wait
        ended = errors[:-1] if by_hand else errors
        require(by_hand or made >= ledger.least_limit, f"{id_} is dead after {made} deliveries")
        kept = made if len(lines) < _LINES else len(ended)
        require(
            [error.attempt for error in ended] == [*range(1, made + 1)][made - kept :]
            and {error.cause for error in ended} <= _CAUSES,
            f"{id_} is dead after {made} deliveries, and its record has {errors}",
        )


@dataclass
class Fairness:
    """Who waits how long in one group of simple consumers, while others are received.

    Attributes:
        turns: After so many leases whoever is first in a lane of a partition was received.
    """

    turns: int
    _waits: dict[tuple[int, str, int], tuple[int, int]] = field(default_factory=dict)
    """By partition, id and lease number: how many leases passed it by, and how many may."""

    def served(self, group: str, places: Iterable[Place]) -> None:
        """A lease has given something. Raises Broken."""
        waits: dict[tuple[int, str, int], tuple[int, int]] = {}
        for number, place in enumerate(places):
            if place.observed or group not in place.groups:
                continue
            ledger = place.ledger(group)
            lanes = Counter(one.place for one in ledger.leases.values())
            for id_, one in ledger.leases.items():
                if one.place in (READY, RETRY):
                    key = (number, id_, one.lease_no)
                    in_front = math.ceil(lanes[one.place] / MOST_AT_ONCE)
                    passed, most = self._waits.get(key, (0, self.turns * in_front))
                    waits[key] = passed + 1, most
                    require(passed < most, f"{id_} of {group} waits for {most} leases of others")
        self._waits = waits
