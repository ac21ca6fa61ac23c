"""The topics, groups and retry ladder of the demo, and how far its groups are."""

from dataclasses import dataclass

from rqretry.admin.views import GroupStats

FLIGHTS = "flights"
ARRIVALS = "arrivals"
CLAIMS_GROUP = "claims"
BOOK_GROUP = "arrival-book"
LEVELS = (
    "1ms 5ms 10ms 30ms 60ms 120ms 180ms 240ms 300ms 360ms 420ms 480ms 540ms 600ms 1200ms 1800ms"
    " 3600ms 7200ms"
)
"""RocketMQ's 18 delay levels, a thousand times as fast."""
MAX_RETRIES = 16


@dataclass(frozen=True, slots=True)
class Progress:
    """The two groups at one moment."""

    claims: GroupStats
    book: GroupStats

    @property
    def unfinished(self) -> int:
        """Messages neither committed nor dead."""
        return sum(
            g.ready + g.retry + g.inflight + g.waiting_count for g in (self.claims, self.book)
        )
