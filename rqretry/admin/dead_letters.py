"""Operations on dead letters: list, export, redrive (with a rate and canaries)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rqretry.admin.context import AdminContext
from rqretry.admin.dead_letter_export import as_json
from rqretry.admin.dead_letter_filter import (
    DeadLetterFilter,
    DeadLettersInOrder,
    Found,
    chosen,
    count_dead_letters,
    dead_letter_clusters,
)
from rqretry.admin.results import RedriveReport
from rqretry.admin.timeline import explained
from rqretry.admin.views import Cluster
from rqretry.catalog.store import Place
from rqretry.core.dead_letter import DeadLetterRecord
from rqretry.core.durations import Duration, milliseconds, seconds, spell
from rqretry.core.errors import refuse
from rqretry.core.failure_record import describe_redrive, read_record
from rqretry.core.limits import MAX_DELAY_MS, MAX_DELAY_S, check_count, check_group
from rqretry.core.rates import Rate, per_second
from rqretry.maintenance.process_exits import with_exits
from rqretry.observability import observer
from rqretry.protocol import inspect as reading
from rqretry.protocol import operate
from rqretry.protocol.command import MAX_BATCH, Operation, Pause, batches
from rqretry.protocol.keys import GroupKeys

SHORTEST_PATIENCE_S = 0.2
"""How often canaries are checked."""
_EXPLAINED = 20
"""Of dead letters selected by id, how many have their histories read."""
SENT_AT_ONCE = 10_000
"""The most dead letters that are read before they are sent."""


class Source(Protocol):
    """Dead letters, one part after the other."""

    def take(self, count: int) -> Operation[Found]:
        """The next ones, so many at most; none at the end."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How dead letters are sent back: see `redrive`."""

    per_second: float | None = None
    canaries: int = 0
    patience: float = 60.0
    wait_ms: int = 0

    @classmethod
    def read(
        cls, rate: Rate | None, canary: int | None, canary_timeout: Duration, delay: Duration = 0
    ) -> "Pace":
        """Check the values. Raises InvalidArgument."""
        return cls(
            None if rate is None else per_second(rate),
            0 if canary is None else check_count(canary, name="canary"),
            seconds(canary_timeout, name="canary_timeout", minimum=SHORTEST_PATIENCE_S),
            milliseconds(delay, name="delay", maximum=MAX_DELAY_S),
        )

    def check(self, rate: Rate | None, count: int) -> None:
        """Whether so many are sent back within the longest delay. Raises InvalidArgument."""
        if self.per_second and self.wait_ms + (count - 1) * 1000 / self.per_second > MAX_DELAY_MS:
            rule = f"sends the last of {count} back later than in {spell(MAX_DELAY_S)}: raise it"
            refuse("rate", rate, rule)


def dead_letters(
    context: AdminContext,
    /,
    group: str,
    filter: DeadLetterFilter | None = None,  # noqa: A002 - the name of the contract
    *,
    bodies: bool = True,
    **fields: Any,
) -> Operation[list[DeadLetterRecord]]:
    """The dead letters of a group, oldest first, of all its topics.

    An attempt during which its worker's process ended says how that did, where a supervisor has
    recorded it. If they are selected by id, the first 20 also say who held the lease of each
    interrupted attempt, as far as the history goes back.

    Args:
        group: The group's name.
        filter: Which ones; default all. Its fields can be given as keywords instead.
        bodies: Fetch and decode the bodies too.
        fields: The filter's fields, if no filter is given.

    Raises:
        GroupNotFound: There is no such group.
        InvalidArgument: The filter is not one.
    """
    wanted = chosen(filter, fields, default_all=True)
    places = yield from dead_letter_places(context, group, wanted)
    source, found = DeadLettersInOrder(places, wanted, with_bodies=bodies), []
    while page := (yield from source.take(SENT_AT_ONCE)):
        found += page
    dead = yield from with_exits(context.catalog.keys, [each for each, _ in found])
    for at in range(min(_EXPLAINED, len(found)) if wanted.ids else 0):
        dead[at] = yield from explained(context.catalog, dead[at], found[at][1])
    return dead


def export(
    context: AdminContext,
    /,
    group: str,
    filter: DeadLetterFilter | None = None,  # noqa: A002 - the name of the contract
    **fields: Any,
) -> Operation[list[dict[str, Any]]]:
    """The dead letters as JSON-compatible dicts; see `dead_letters`.

    A body that JSON cannot represent is in `body_base64` instead of `body`: raw bytes, or the
    stored bytes of a body that cannot be decoded.
    """
    found = yield from dead_letters(context, group, filter, **fields)
    return [as_json(dead_letter) for dead_letter in found]


def redrive(
    context: AdminContext,
    /,
    group: str,
    filter: DeadLetterFilter | None = None,  # noqa: A002 - the name of the contract
    *,
    rate: Rate | None = None,
    canary: int | None = None,
    canary_timeout: Duration = 60,
    delay: Duration = 0,
    dry_run: bool = False,
    **fields: Any,
) -> Operation[RedriveReport]:
    """Send dead letters back to the group, oldest first: attempt 1 again, same id and body.

    Args:
        group: The group's name.
        filter: Which ones (or, instead, as keywords): ids=, topic=, fingerprint=, error=, since=,
            before=, or all=True.
        rate: The highest rate, such as "20/s" or "100/m": all are sent back now, each with its
            own due time, so the rate holds even if this process ends. Default: all at once.
        canary: Send this many first, and the rest when each of them was committed or has failed
            with another error. One that fails with the same error again stops the redrive. Default
            none.
        canary_timeout: How long to wait for them, 200 ms or more; after that the redrive stops,
            too. Default 60 s.
        delay: How long from now the first of them is due, at most 40 days; canaries do not wait.
        dry_run: Only count them.
        fields: The filter's fields, if no filter is given.

    Returns:
        How many were sent back (or would be): an int that also describes the canaries.

    Raises:
        GroupNotFound: There is no such group.
        InvalidArgument: The filter selects nothing in particular (pass all=True), or a value is
            outside its limits.
    """
    wanted = chosen(filter, fields, default_all=False)
    pace = Pace.read(rate, canary, canary_timeout, delay)
    places = yield from dead_letter_places(context, group, wanted)
    counted = dry_run or pace.canaries or pace.per_second
    matched = (yield from count_dead_letters(places, wanted)) if counted else 0
    pace.check(rate, matched)
    if dry_run:
        return RedriveReport(matched, matched=matched)
    source = DeadLettersInOrder(places, wanted, with_bodies=False)
    arguments = {"group": group, "rate": rate} | wanted.given()
    at_once = min(SENT_AT_ONCE, MAX_BATCH * len(places))
    return (yield from send_back(context, source, pace, arguments, matched, at_once=at_once))


def send_back(
    context: AdminContext,
    source: Source,
    pace: Pace,
    arguments: Mapping[str, Any],
    matched: int,
    *,
    at_once: int = SENT_AT_ONCE,
) -> Operation[RedriveReport]:
    """Send back all that a source has, canaries first.

    Args:
        context: The operator.
        source: The dead letters, oldest first; no more than one part of them is in memory.
        pace: How.
        arguments: For the audit record.
        matched: How many it has, if there are canaries.
        at_once: How many are read before they are sent.
    """
    tried = RedriveReport(0, matched=0)
    if pace.canaries:
        canaries = yield from source.take(pace.canaries)
        tried = yield from _send_canaries(context, canaries, matched, pace.patience, arguments)
        if tried.reason:
            return tried
    index = done = 0
    while found := (yield from source.take(at_once)):
        done += yield from _send_back(context, found, pace.per_second, pace.wait_ms, index)
        index += len(found)
    yield from context.audit("redrive", arguments, {"sent": done})
    matched, canaries_sent = tried.canaries + index, tried.canaries
    return RedriveReport(tried + done, matched=matched, canaries=canaries_sent, failed=tried.failed)


def _send_canaries(
    context: AdminContext,
    canaries: Found,
    matched: int,
    patience: float,
    arguments: Mapping[str, Any],
) -> Operation[RedriveReport]:
    """Send the first ones and wait for them; a reason in the report stops the redrive."""
    sent = yield from _send_back(context, canaries, None)
    yield from context.audit("redrive", {**arguments, "step": "canary"}, {"sent": sent})
    failed, reason = yield from _watch(canaries, patience)
    if reason:
        counts = {"failed": failed, "left": matched - sent}
        yield from context.audit("redrive", {**arguments, "step": "stopped: " + reason}, counts)
    return RedriveReport(
        sent, matched=matched, canaries=len(canaries), failed=failed, reason=reason
    )


def clusters(context: AdminContext, group: str) -> Operation[list[Cluster]]:
    """The dead letters of a group by fingerprint. Raises GroupNotFound."""
    places = yield from dead_letter_places(context, group, DeadLetterFilter(all=True))
    return (yield from dead_letter_clusters(places))


def page_of_dead_letters(
    context: AdminContext, group: str, wanted: DeadLetterFilter, first: int, count: int
) -> Operation[list[DeadLetterRecord]]:
    """So many of the selected dead letters behind the `first` ones, oldest first, no bodies."""
    places = yield from dead_letter_places(context, group, wanted)
    source = DeadLettersInOrder(places, wanted, with_bodies=False)
    while first > 0 and (skipped := (yield from source.take(min(first, SENT_AT_ONCE)))):
        first -= len(skipped)
    found = yield from source.take(count)
    return (yield from with_exits(context.catalog.keys, [each for each, _ in found]))


def dead_letter_places(
    context: AdminContext, group: str, wanted: DeadLetterFilter
) -> Operation[list[Place]]:
    """Where the selected dead letters are."""
    record = yield from context.catalog.groups.get(check_group(group))
    if record.source:  # there is no dead-letter queue of a dead-letter queue
        return []
    return (yield from context.places_now(record, wanted.topic))


def _send_back(
    context: AdminContext, found: Found, pace: float | None, wait_ms: int = 0, index: int = 0
) -> Operation[int]:
    """Redrive them after `wait_ms`; with a pace, the k-th one k / pace seconds later.

    `index` is the k of the first one. They are sent in the order of their due times, across all
    places, so that an interrupted call has sent the first ones.
    """
    by_place: dict[GroupKeys, list[tuple[DeadLetterRecord, int | str]]] = {}
    for at, (dead_letter, keys) in enumerate(found, index):
        delay_ms = wait_ms + (round(at * 1000 / pace) if pace else 0)
        by_place.setdefault(keys, []).append((dead_letter, delay_ms or ""))
    sent = 0
    for keys, part in by_place.items():
        for batch in batches(part, operate.MAX_REDRIVEN):
            sent += yield from _send_batch(context, keys, batch)
    return sent


def _send_batch(
    context: AdminContext, keys: GroupKeys, batch: Sequence[tuple[DeadLetterRecord, int | str]]
) -> Operation[int]:
    dead_letters = [dead_letter for dead_letter, _ in batch]
    delays = [delay for _, delay in batch]
    ids = [dead_letter.id for dead_letter in dead_letters]
    seen, namespace = observer.installed, keys.partition.namespace
    watch = seen and seen.redriving(namespace, keys.group, dead_letters, context.actor)
    traces = watch.traces if watch else [""] * len(ids)
    records = [describe_redrive(context.actor, trace) for trace in traces]
    verdicts: list[bytes] = yield operate.redrive(
        keys, ids, actor=context.actor, delays_ms=delays, records=records
    )
    if watch:
        watch.done([verdict == b"OK" for verdict in verdicts])
    return verdicts.count(b"OK")


def _watch(canaries: Found, patience: float) -> Operation[tuple[int, str]]:
    """Wait for each canary to commit or fail: how many failed, and why to stop, or ""."""
    failed = 0
    waiting = list(canaries)
    for _ in range(max(1, round(patience / SHORTEST_PATIENCE_S))):
        peeked = yield [reading.peek(keys, dead_letter.id) for dead_letter, keys in waiting]
        still: Found = []
        for (dead_letter, keys), seen in zip(waiting, peeked, strict=True):
            again = _failed_again(seen)
            if again is not None:
                failed += 1
                if again == dead_letter.fingerprint:
                    return failed, f"canary {dead_letter.id} failed again: {dead_letter.error}"
            elif not _committed(seen):
                still.append((dead_letter, keys))
        if not still:
            return failed, ""
        waiting = still
        yield Pause(SHORTEST_PATIENCE_S)
    reason = f"{len(waiting)} of {len(canaries)} canaries were not done in time"
    return failed, reason


def _failed_again(seen: reading.Peeked) -> str | None:
    """The fingerprint of the failure since the redrive; None if there was none."""
    errors = read_record(seen.failures)
    if not seen.stored or not errors or errors[-1].cause == "redriven":
        return None
    return errors[-1].fingerprint


def _committed(seen: reading.Peeked) -> bool:
    return not seen.stored or bool(seen.owed and seen.byte not in seen.owed)
