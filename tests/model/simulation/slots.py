"""What is promised of a schedule: each slot is published once whoever crashes, and all are."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from tests.model.simulation.calls import require
from tests.model.simulation.ledger import Place
from tests.model.simulation.processes import SCHEDULE


class Slots:
    """The slots of the schedule.

    Attributes:
        every_s: How often there is one.
        begins: The time from which on they count; None while it is not defined.
    """

    def __init__(self, every_s: int) -> None:
        self.every_s = every_s
        self.begins: int | None = None

    def defined(self, keys: Sequence[str], args: Sequence[Any], reply: Any) -> None:
        """A record of the catalog is swapped, maybe this one's."""
        if self.begins is None and keys[1].endswith(":schedules") and reply == 1:
            self.begins = json.loads(args[2])["position"]

    def published(self, place: Place) -> list[int]:
        """Those that are stored, or were. Raises Broken where one was stored twice."""
        twice = [id_ for id_, times in place.ever.items() if times > 1]
        require(not twice, f"published twice: {twice}")
        texts = (id_.removeprefix(f"{SCHEDULE}:") for id_ in place.ever)
        return sorted(int(datetime.fromisoformat(text).timestamp()) for text in texts)

    def upto(self, until: int) -> set[int]:
        """All that there are since it was defined, up to a time."""
        if self.begins is None:
            return set()
        first = self.begins - self.begins % self.every_s + self.every_s
        return set(range(first, until + 1, self.every_s))

    def check(self, place: Place) -> None:
        """None is missing. Raises Broken."""
        found = self.published(place)
        wanted = self.upto(found[-1]) if found else set()
        require(
            set(found) == wanted, f"slots {sorted(wanted ^ set(found))} are missing, or are none"
        )
