"""The simple consumer: receive, and what simple_settling.py has, without I/O.

There is no failure report and no retry policy: a message that is not acknowledged is ready again
when its invisible duration ends, and dead after max_retries + 1 deliveries.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rqretry.catalog.catalog import Catalog
from rqretry.catalog.store import Place
from rqretry.consumer.simple_settling import SimpleSettling, invisible_ms
from rqretry.core.back_off import BackOff
from rqretry.core.catalog_records import SIMPLE, GroupRecord
from rqretry.core.durations import Duration, seconds
from rqretry.core.envelope import decode
from rqretry.core.errors import (
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
from rqretry.protocol.command import Block, Command, Operation
from rqretry.protocol.keys import GroupKeys
from rqretry.protocol.lease import (
    Failure,
    Leased,
    fail,
    lease,
)
from rqretry.protocol.maintain import feed_dlq_group
from rqretry.protocol.rate_limit import Tokens, rate_take

log = logging.getLogger("rqretry")

LONGEST_WAIT_S = 20 * 60
_LOOK_EVERY_S = 5.0


class SimpleOperations(SimpleSettling):
    """What a simple consumer does, without I/O."""

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
        self._prefer = "ready"
        self._refused: dict[Place, BackOff] = {}
        self._rated = False
        """The group has a rate limit: a lease needs tokens."""

    def join(self) -> Operation[GroupRecord]:
        """Subscribe; done once, by the first call. Raises GroupNotFound, TopicNotFound."""
        if self._record is None:
            record = yield from self.catalog.join(
                self.group, SIMPLE, self.topics, create_topics=False, **self._subscription
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
            max_messages: 1 to 32.
            invisible_duration: How long nobody else gets them, 10 ms to 12 h; default 30 s.
            wait: How long to wait for the first one, 0 to 20 min; default 20 s.

        Returns:
            The messages, possibly none.

        Raises:
            InvalidArgument: A value is outside its range.
            GroupNotFound, TopicNotFound: It is not there (see `create_group`).
        """
        most = check_count(max_messages, name="max_messages", maximum=MAX_RECEIVE)
        duration_ms = invisible_ms(invisible_duration)
        end = time.monotonic() + seconds(wait, name="wait", maximum=LONGEST_WAIT_S)
        yield from self.join()
        while True:
            if time.monotonic() >= self._found_at + _LOOK_EVERY_S:
                yield from self._find_places()
            if time.monotonic() >= self._sweeps.next_at:
                yield from self._sweeps.round({place.keys.partition for place in self._places})
            asked_ns = time.time_ns()
            received, look_again_s = yield from self._look_everywhere(most, duration_ms)
            if received and observer.installed is not None:
                observer.installed.received(self.namespace, received, self.worker, asked_ns)
            rest = end - time.monotonic()
            if received or rest <= 0:
                return received
            wakes = tuple(keys.wake for _, _, keys in self._open_places())
            yield Block(wakes, min(rest, look_again_s))

    def _look_everywhere(
        self, most: int, duration_ms: int
    ) -> Operation[tuple[list[Message[Any]], float]]:
        """One round over all partitions; the messages, or how soon to look again."""
        received: list[Message[Any]] = []
        look_again_ms = _LOOK_EVERY_S * 1000
        self._places = [*self._places[1:], *self._places[:1]]  # anew: other threads read it
        self._prefer = "retry" if self._prefer == "ready" else "ready"
        for place in self._open_places():
            want = most - len(received)
            if want <= 0:
                break
            started = time.monotonic()
            try:
                leased = yield from self._lease(place, want, duration_ms)
                expires = started + duration_ms / 1000
                received += yield from self._messages(place, leased, expires)
            except RqretryError as error:
                self._put_off(place, error, received)
                continue
            self._refused.pop(place, None)
            for soon_ms in (leased.next_due_ms, leased.next_deadline_ms, leased.next_scheduled_ms):
                if soon_ms is not None:
                    look_again_ms = min(look_again_ms, soon_ms or STUCK_MS)
        return received, look_again_ms / 1000

    def _open_places(self) -> list[Place]:
        """Those that are not put off after an error; all, if all are."""
        now = time.monotonic()
        put_off = {place for place, refused in [*self._refused.items()] if refused.again_at > now}
        return [place for place in self._places if place not in put_off] or list(self._places)

    def _put_off(self, place: Place, error: RqretryError, received: Sequence[object]) -> None:
        """Leave a place alone for a while, if there are others; raises the error, if not."""
        self._refused.setdefault(place, BackOff()).failed(str(error), time.monotonic())
        alone = self._refused.keys() >= set(self._places)
        if not received and (alone or isinstance(error, StoreUnavailable)):
            raise error
        log.warning("nothing can be received for %s, trying again: %s", place.keys, error)

    def _lease(self, place: Place, want: int, duration_ms: int) -> Operation[Leased]:
        """Lease as many as there are, and the group's rate limit has tokens for."""
        if not self._rated:
            leased = yield from self._lease_and_maintain(place, want, duration_ms)
            if leased.status != "RATED":
                return leased
        bucket = place.keys.bucket
        tokens: Tokens = yield rate_take(bucket, want=want)
        self._rated = tokens.given != 0
        leased = yield from self._lease_and_maintain(place, tokens.given or want, duration_ms)
        self._rated = bool(leased.rate)
        if tokens.given == 0:
            return leased._replace(next_due_ms=tokens.wait_ms)
        if tokens.given is not None and tokens.given > len(leased.ids):
            yield rate_take(bucket, want=0, returned=tokens.given - len(leased.ids))
        return leased

    def _lease_and_maintain(self, place: Place, want: int, duration_ms: int) -> Operation[Leased]:
        """Lease, and move what turns out to be due."""
        keys = place.keys
        command: Command[Leased] = lease(
            keys,
            worker=self.worker,
            want=want,
            visibility_ms=duration_ms,
            prefer=self._prefer,
            tokens=self._rated,
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
