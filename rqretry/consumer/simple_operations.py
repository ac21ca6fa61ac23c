"""The simple consumer: receive, and what simple_settling.py has, without I/O.

There is no failure report and no retry policy: a message that is not acknowledged is ready again
when its invisible duration ends, and dead after max_retries + 1 deliveries.
"""

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rqretry.catalog.catalog import Catalog
from rqretry.catalog.store import Place
from rqretry.consumer.simple_settling import SimpleSettling, invisible_ms
from rqretry.consumer.turns import Turns
from rqretry.core.back_off import BackOff
from rqretry.core.catalog_records import SIMPLE, GroupRecord
from rqretry.core.durations import Duration, seconds
from rqretry.core.envelope import decode
from rqretry.core.errors import (
    AmbiguousResult,
    CodecError,
    RqretryError,
    StoreUnavailable,
)
from rqretry.core.failure_record import describe_cause
from rqretry.core.limits import MAX_POSTPONES, MAX_RECEIVE, check_count
from rqretry.core.message import Message, ReceiptHandle
from rqretry.maintenance.due import STUCK_MS, Due, Maintenance
from rqretry.maintenance.retention import Sweeps
from rqretry.observability import observer
from rqretry.protocol.command import Block, Command, Each, Operation
from rqretry.protocol.keys import GroupKeys
from rqretry.protocol.lease import (
    READY,
    RETRY,
    Failure,
    Leased,
    Polled,
    fail,
    lease,
    poll,
    with_large,
)
from rqretry.protocol.maintain import feed_dlq_group
from rqretry.protocol.rate_limit import Tokens, rate_take

log = logging.getLogger("rqretry")

LONGEST_WAIT_S = 20 * 60
_LOOK_EVERY_S = 5.0
_LOOKED_AT = 32
"""How many places are asked at most for whose turn it is, before each receive."""


class SimpleOperations(SimpleSettling):
    """What a simple consumer does, without I/O."""

    kind = SIMPLE
    """Of its group."""

    def __init__(
        self,
        catalog: Catalog,
        group: str,
        topics: Sequence[str],
        worker: str,
        subscription: Mapping[str, Any],
        max_postpones: int = MAX_POSTPONES,
    ) -> None:
        self.catalog = catalog
        self.group = group
        self.topics = topics
        self.worker = worker
        self.namespace = catalog.namespace
        self._subscription = subscription
        """What it names as it joins, beside its topics; see Catalog.join."""
        self._max_postpones = max_postpones
        self._record: GroupRecord | None = None
        self._places = []
        self._found_at = 0.0
        self._maintenance = Maintenance(catalog.topics, worker)
        self._sweeps = Sweeps(catalog.topics, catalog.group_keys)
        self._turns = Turns(catalog.chance)
        self._refused: dict[Place, BackOff] = {}
        self._rated = False
        """The group has a rate limit: a lease needs tokens."""
        self.paused = False
        """The group was paused when it was last leased from."""

    def join(self) -> Operation[GroupRecord]:
        """Subscribe; done once, by the first call. Raises GroupNotFound, TopicNotFound."""
        if self._record is None:
            record = yield from self.catalog.join(
                self.group, self.kind, self.topics, create_topics=False, **self._subscription
            )
            yield from self._find_places()
            self._record = record  # a call that was cut off before this joins again
        return self._record

    def _find_places(self) -> Operation[None]:
        """Every partition, anew."""
        self._found_at = time.monotonic()
        self._places = yield from self.catalog.groups.places(self.group, self.topics)

    def _keys(self, handle: ReceiptHandle) -> GroupKeys:
        return self.catalog.group_keys(handle.topic, handle.partition, self.group)

    def _report_deaths(self, keys: GroupKeys, ids: Sequence[str], now_ms: int) -> Operation[None]:
        yield from self._maintenance.report_deaths(keys, ids, now_ms)

    def receive(
        self,
        max_messages: int = 16,
        invisible_duration: Duration = 30,
        wait: Duration = 20,
    ) -> Operation[list[Message[Any]]]:
        """Lease up to `max_messages`, waiting for the first one.

        Args:
            max_messages: 1 to 32; default 16.
            invisible_duration: How long nobody else gets them, 10 ms to 12 h; default 30 s.
            wait: How long to wait for the first one, 0 to 20 min; default 20 s.

        Returns:
            The messages, possibly none.

        Raises:
            InvalidArgument: A value is outside its range.
            GroupNotFound, TopicNotFound: It is not there (see `create_group`).
            AmbiguousResult: The answer was lost. What it may have taken is delivered again when
                the invisible duration ends, as the next attempt; nothing else was taken.
        """
        most = check_count(max_messages, name="max_messages", maximum=MAX_RECEIVE)
        duration_ms = invisible_ms(invisible_duration)
        end = time.monotonic() + seconds(wait, name="wait", maximum=LONGEST_WAIT_S)
        yield from self.join()
        while True:
            received, look_again_s = yield from self.look(most, duration_ms)
            rest = end - time.monotonic()
            if received or rest <= 0:
                return received
            yield Block(self.wake_keys, min(rest, look_again_s))

    def look(self, most: int, duration_ms: int) -> Operation[tuple[list[Message[Any]], float]]:
        """Lease what is there now, for `receive`; the messages, or how soon to look again."""
        yield from self.join()
        if time.monotonic() >= self._found_at + _LOOK_EVERY_S:
            yield from self._find_places()
        if time.monotonic() >= self._sweeps.next_at:
            partitions = dict.fromkeys(place.keys.partition for place in self._places)
            yield from self._sweeps.round(partitions)
        asked_ns = time.time_ns()
        received, look_again_s = yield from self._look_everywhere(most, duration_ms)
        if received and observer.installed is not None:
            observer.installed.received(self.namespace, received, self.worker, asked_ns)
        return received, look_again_s

    @property
    def wake_keys(self) -> tuple[str, ...]:
        """What is set when there may be something to receive; after `join`."""
        return tuple(keys.wake for _, _, keys in self._open_places())

    def _look_everywhere(
        self, most: int, duration_ms: int
    ) -> Operation[tuple[list[Message[Any]], float]]:
        """One round over all partitions; the messages, or how soon to look again."""
        received: list[Message[Any]] = []
        look_again_ms = _LOOK_EVERY_S * 1000
        lane = self._turns.next_lane()
        listed: dict[Place, dict[str, int]] = {}
        if len(self._places) > 1:
            listed = yield from self._listed(lane, duration_ms // 3)
        try:
            for each, place, held in self._turns.plan(lane, listed):
                want = min(held, most - len(received))
                if want > 0:
                    yield from self._take(received, each, place, want, duration_ms)
            for place in [] if received else self._turns.order(lane, self._open_places()):
                want = most - len(received)
                if want > 0:
                    soon_ms = yield from self._take(received, lane, place, want, duration_ms)
                    look_again_ms = min(look_again_ms, soon_ms)
        except AmbiguousResult as error:  # nothing more is leased while that may be on its way
            if not received:
                raise
            log.warning("%s", error)
        return received, look_again_ms / 1000

    def _listed(self, lane: str, hold_ms: int) -> Operation[dict[Place, dict[str, int]]]:
        """How many places have in their lanes, once what is due was moved there.

        Raises:
            StoreUnavailable: No place can be asked.
        """
        places = self._turns.order(lane, self._open_places())[:_LOOKED_AT]
        seen = yield from self._polled(places)
        listed = {place: {READY: found.ready, RETRY: found.retry} for place, found in seen.items()}
        due = [p for p, found in seen.items() if 0 in (found.next_due_ms, found.next_deadline_ms)]
        moving = self._maintenance.move([Due(place.keys, hold_ms=hold_ms) for place in due])
        for place, moved in zip(due, (yield from moving), strict=True):
            listed[place][RETRY] += moved.promoted + moved.expired
        scheduled = [place for place, found in seen.items() if found.next_scheduled_ms == 0]
        if scheduled:
            yield from self._maintenance.deliver([place.keys.partition for place in scheduled])
            for place in scheduled:
                listed[place][READY] += MAX_RECEIVE
        for place in places:
            if not listed.get(place, {}).get(lane):
                self._turns.had(lane, place)  # the next ones are looked at before it is again
        return listed

    def _polled(self, places: Sequence[Place]) -> Operation[dict[Place, Polled]]:
        """What a look at each finds; those that refuse it are put off."""
        views = [place.keys for place in places if place.keys.source]
        if views:
            yield Each([feed_dlq_group(keys, worker=self.worker) for keys in views])
        answers = yield Each([poll([place.keys], once=True) for place in places])
        seen: dict[Place, Polled] = {}
        for place, answer in zip(places, answers, strict=True):
            if isinstance(answer, AmbiguousResult):  # nothing was asked for but a look
                self._put_off(place, StoreUnavailable(answer.reason), seen)
            elif isinstance(answer, RqretryError):
                self._put_off(place, answer, seen)
            elif answer[0] is not None:
                seen[place] = answer[0]
        return seen

    def _take(
        self, received: list[Message[Any]], lane: str, place: Place, want: int, duration_ms: int
    ) -> Operation[float]:
        """Add what a place has; answers how soon to look there again, in milliseconds.

        Raises:
            AmbiguousResult: The answer was lost, and nothing was received yet.
        """
        started, before = time.monotonic(), len(received)
        try:
            leased = yield from self._lease(place, lane, want, duration_ms)
            expires = started + duration_ms / 1000
            received += yield from self._messages(place, leased, expires)
        except AmbiguousResult:
            raise
        except RqretryError as error:
            self._put_off(place, error, received)
            return _LOOK_EVERY_S * 1000
        self._refused.pop(place, None)
        self._note_pause(leased.status == "PAUSED")
        if len(received) > before:
            self._turns.had(lane, place)
        times = (leased.next_due_ms, leased.next_deadline_ms, leased.next_scheduled_ms)
        return min((ms or STUCK_MS for ms in times if ms is not None), default=_LOOK_EVERY_S * 1000)

    def _note_pause(self, paused: bool) -> None:  # noqa: FBT001 - the one thing to note
        if paused and not self.paused:
            log.warning(
                "group %r is paused: nothing is received until `rqretry group resume %s`",
                self.group,
                self.group,
            )
        self.paused = paused

    def _open_places(self) -> list[Place]:
        """Those that are not put off after an error; all, if all are."""
        now = time.monotonic()
        put_off = {place for place, refused in [*self._refused.items()] if refused.again_at > now}
        return [place for place in self._places if place not in put_off] or list(self._places)

    def _put_off(self, place: Place, error: RqretryError, received: Collection[object]) -> None:
        """Leave a place alone for a while, if there are others; raises the error, if not."""
        self._refused.setdefault(place, BackOff()).failed(str(error), time.monotonic())
        alone = self._refused.keys() >= set(self._places)
        if not received and (alone or isinstance(error, StoreUnavailable)):
            raise error
        log.warning("nothing can be received for %s, trying again: %s", place.keys, error)

    def _lease(self, place: Place, lane: str, want: int, duration_ms: int) -> Operation[Leased]:
        """Lease as many as there are, and the group's rate limit has tokens for."""
        if not self._rated:
            leased = yield from self._lease_and_maintain(place, lane, want, duration_ms)
            if leased.status != "RATED":
                return leased
        bucket = place.keys.bucket
        tokens: Tokens = yield rate_take(bucket, want=want)
        self._rated = tokens.given != 0
        given = tokens.given or want
        leased = yield from self._lease_and_maintain(place, lane, given, duration_ms)
        self._rated = bool(leased.rate)
        if tokens.given == 0:
            return leased._replace(next_due_ms=tokens.wait_ms)
        if tokens.given is not None and tokens.given > len(leased.ids):
            yield rate_take(bucket, want=0, returned=tokens.given - len(leased.ids))
        return leased

    def _lease_and_maintain(
        self, place: Place, lane: str, want: int, duration_ms: int
    ) -> Operation[Leased]:
        """Lease, and move what turns out to be due."""
        keys = place.keys
        command: Command[Leased] = lease(
            keys,
            worker=self.worker,
            want=want,
            visibility_ms=duration_ms,
            prefer=lane,
            tokens=self._rated,
            once=True,
        )
        if keys.source:
            yield feed_dlq_group(keys, worker=self.worker)
        leased: Leased = yield command
        if leased.status == "NO_GROUP":
            self._record = None
            self._places = []
            yield from self.join()
            leased = yield command
        if 0 not in (leased.next_due_ms, leased.next_deadline_ms, leased.next_scheduled_ms):
            return leased
        promote, expire = leased.next_due_ms == 0, leased.next_deadline_ms == 0
        yield from self._maintenance.move([Due(keys, promote, expire, hold_ms=duration_ms // 3)])
        if leased.next_scheduled_ms == 0:
            yield from self._maintenance.deliver([keys.partition])
        return leased if leased.ids else (yield command)

    def _messages(
        self, place: Place, leased: Leased, expires: float
    ) -> Operation[list[Message[Any]]]:
        topic, partition, keys = place
        record = yield from self.join()
        leased = yield from with_large(place.keys, leased)
        good: list[Message[Any]] = []
        bad: list[Failure] = []
        for id_, data, (lease_no, attempt), last_error in zip(
            leased.ids, leased.data, leased.numbers, leased.last_errors, strict=True
        ):
            handle = ReceiptHandle(topic, partition, self.group, lease_no, id_)
            try:
                envelope = decode(data)
                good.append(
                    Message(handle, envelope, attempt, record.max_retries, expires, last_error)
                )
            except CodecError as error:
                cause = describe_cause("undecodable", str(error))
                bad.append(Failure(handle.receipt, -1, "", 0.0, "undecodable", cause))
        if bad:
            yield fail(keys, bad, worker=self.worker, tracebacks={})
        return good
