"""What a partition keeps of what was consumed, and delivers again."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

OVERHEAD = 256
"""What a kept message counts more than its body, in bytes."""
CALLS = 2048
"""So many calls of one millisecond have times of their own."""


class Kept(NamedTuple):
    """A message that no group owes."""

    at: float
    size: int
    content: str
    name: str


@dataclass
class Keep:
    """What one partition keeps.

    Attributes:
        keep_ms, most_bytes: For how long, and how much; None where nothing was ever kept.
        sizes: The bytes of each body.
        consumed: By group, when it was done with what.
        kept: What no group owes any more.
        swept_ms: What was kept at this very millisecond may be forgotten, or may not.
    """

    keep_ms: int | None = None
    most_bytes: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    consumed: dict[str, dict[str, float]] = field(default_factory=dict)
    kept: dict[str, Kept] = field(default_factory=dict)
    swept_ms: int = 0

    def configure(self, keep_ms: int, most_bytes: int) -> None:
        """A newer route says so."""
        if keep_ms or self.keep_ms is not None:
            self.keep_ms, self.most_bytes = keep_ms, most_bytes

    def consume(
        self, group: str, ids: Sequence[str], now: int, last: Sequence[tuple[str, str, str]]
    ) -> None:
        """A group is done with these; of the last ones no group owes any more: content and name."""
        if not self.keep_ms:
            return
        consumed = self.consumed.setdefault(group, {})
        newest = max(consumed.values(), default=0.0)
        at = max(float(now), newest + 1 / CALLS)  # the calls of one group are told apart
        consumed.update(dict.fromkeys(ids, at))
        for id_, content, name in last:
            self.kept[id_] = Kept(at, self.sizes.get(id_, 0), content, name)

    def page(self, group: str, since: int, upto: int, limit: int) -> list[str]:
        """What a replay of this time looks at, and no other one after it."""
        consumed = self.consumed.get(group, {})
        found = sorted((at, id_) for id_, at in consumed.items() if since <= at < upto)[:limit]
        for _, id_ in found:
            del consumed[id_]
        return [id_ for _, id_ in found]

    def since(self, since: int) -> list[str]:
        """What is kept since a time, the oldest first."""
        found = sorted((one.at, id_) for id_, one in self.kept.items() if one.at >= since)
        return [id_ for _, id_ in found]

    def sweep(self, now: int, limit: int, groups: Sequence[str]) -> None:
        """What is too old is forgotten, and of what is too much the oldest."""
        if self.keep_ms is None:
            return
        self.swept_ms = end = now - self.keep_ms
        each = math.ceil(min(limit, 10 * limit / len(groups))) if groups else limit
        oldest = sorted(self.kept.items(), key=lambda one: (one[1].at, one[0]))
        held = sum(OVERHEAD + one.size for one in self.kept.values())
        gone: set[str] = set()
        for id_, one in oldest[:each]:
            if one.at >= end and held <= self.most_bytes:
                break
            held -= OVERHEAD + one.size
            gone.add(id_)
            del self.kept[id_]
        for group in groups:
            consumed = self.consumed.get(group, {})
            over = [id_ for id_, at in consumed.items() if at < end]
            for id_ in {*over[:each], *gone} & consumed.keys():
                del consumed[id_]

    def settle_doubts(self, kept: set[str], consumed: dict[str, set[str]]) -> None:
        """What the server holds says what became of what was kept in the last millisecond."""
        for id_ in [i for i, one in self.kept.items() if int(one.at) == self.swept_ms]:
            if id_ not in kept:
                del self.kept[id_]
        for group, there in self.consumed.items():
            for id_ in [i for i, at in there.items() if int(at) == self.swept_ms]:
                if id_ not in consumed.get(group, there):
                    del there[id_]
