"""What other settings would mean for the messages that a group has now; nothing is written."""

from collections import Counter
from collections.abc import Iterator

from rqretry.admin.views import AttemptForecast, GroupForecast
from rqretry.catalog.store import Place
from rqretry.core.catalog_records import SIMPLE, GroupRecord
from rqretry.core.delay_levels import LevelTable
from rqretry.core.limits import UNLIMITED
from rqretry.protocol.command import Command, Operation
from rqretry.protocol.keys import GroupKeys
from rqretry.protocol.operate import Held, scan_group


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
        for key, in_list in _everything(place.keys):
            found = yield from _attempts(place.keys, key, in_list=in_list)
            counts += found
            waiting += found.total() if key in place.keys.levels else 0
    rows = tuple(
        AttemptForecast(
            attempt,
            count,
            wait_after(before, levels, attempt),
            wait_after(after, levels, attempt),
        )
        for attempt, count in sorted(counts.items())
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
    return record.policy.compile(levels.ms).delay_ms(attempt) / 1000


def _everything(keys: GroupKeys) -> Iterator[tuple[str, bool]]:
    yield keys.ready, True
    yield keys.retry, True
    yield keys.inflight, False
    for level in keys.levels:
        yield level, False


def _attempts(keys: GroupKeys, key: str, *, in_list: bool) -> Operation[Counter[int]]:
    counts: Counter[int] = Counter()
    offset, total = 0, 1
    while offset < total:
        look: Command[Held] = scan_group(keys, key, in_list=in_list, offset=offset)
        page = yield look
        if not page.ids:
            break
        offset, total = offset + len(page.ids), page.total
        counts.update(page.attempts)
    return counts
