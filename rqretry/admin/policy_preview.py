"""What other settings would mean for the messages that a group has now; nothing is written."""

from collections import Counter

from rqretry.admin.views import AttemptForecast, GroupForecast
from rqretry.catalog.store import Place
from rqretry.core import retry_policy
from rqretry.core.catalog_records import SIMPLE, GroupRecord
from rqretry.core.delay_levels import LevelTable
from rqretry.core.limits import UNLIMITED
from rqretry.protocol.command import Operation
from rqretry.protocol.operate import scan


def forecast(
    before: GroupRecord,
    after: GroupRecord,
    levels: LevelTable,
    places: list[Place],
    settings: dict[str, str],
) -> Operation[GroupForecast]:
    """Read the group's messages, page by page, and say what their next failures would mean."""
    counts: Counter[int] = Counter()
    waiting = 0
    for place in places:
        keys = place.keys
        for key in (*keys.lists, keys.inflight, *keys.levels):
            attempts = yield from scan(keys, key, lambda page: page.attempts)
            counts.update(attempts)
            waiting += len(attempts) if key in keys.levels else 0
    rows = tuple(
        AttemptForecast(n, count, wait_after(before, levels, n), wait_after(after, levels, n))
        for n, count in sorted(counts.items())
    )
    doomed = sum(
        row.count for row in rows if row.wait_after_s is None and row.wait_before_s is not None
    )
    return GroupForecast(before.name, settings, waiting, counts.total(), doomed, rows)


def wait_after(record: GroupRecord, levels: LevelTable, attempt: int) -> float | None:
    """Seconds until the retry when this delivery fails, without jitter; None: it is the last."""
    if record.max_retries != UNLIMITED and attempt > record.max_retries:
        return None
    if record.kind == SIMPLE:  # the message is ready again when the lease ends
        return 0.0
    return retry_policy.compiled(record.policy, levels.ms).delay_ms(attempt) / 1000
