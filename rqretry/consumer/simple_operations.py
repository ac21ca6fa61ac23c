"""The simple consumer: receive, ack, change the invisible duration, without I/O.

There is no failure report and no retry policy: a message that is not acknowledged is ready again
when its invisible duration ends, and dead after max_retries + 1 deliveries.
"""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from rqretry.catalog.catalog import Catalog
from rqretry.catalog.store import Place
from rqretry.core.back_off import BackOff
from rqretry.core.catalog_records import SIMPLE, GroupRecord
from rqretry.core.durations import Duration, milliseconds, seconds
from rqretry.core.envelope import decode
from rqretry.core.errors import (
    CodecError,
    InvalidReceiptHandle,
    RqretryError,
    StoreUnavailable,
    refuse,
    show,
    shown_ids,
)
from rqretry.core.failure_record import describe_cause
from rqretry.core.limits import MAX_INVISIBLE_S, MAX_RECEIVE, MIN_INVISIBLE_S, check_count
from rqretry.core.message import Message, ReceiptHandle
from rqretry.maintenance.due import STUCK_MS, Due, Maintenance
from rqretry.maintenance.retention import Sweeps
from rqretry.observability import observer
from rqretry.protocol.command import Block, Command, Operation, batches
from rqretry.protocol.keys import GroupKeys
from rqretry.protocol.lease import (
    GONE,
    LATER,
    OK,
    STALE,
    Failure,
    Leased,
    change_visibility,
    fail,
    lease,
    succeed,
)
from rqretry.protocol.maintain import feed_dlq_group
from rqretry.protocol.rate_limit import Tokens, rate_take

log = logging.getLogger("rqretry")

LONGEST_WAIT_S = 20 * 60
_LOOK_EVERY_S = 5.0
_ACKNOWLEDGEABLE = "must be a message, its receipt_handle, or a list of them"

Acknowledgeable = Message[Any] | str
_UNSEEN = nullcontext(observer.Unseen())


class SimpleOperations:
    """What a simple consumer does, without I/O."""

    def __init__(
        self,
        catalog: Catalog,
        group: str,
        topics: Sequence[str],
        worker: str,
        subscription: Mapping[str, Any],
    ) -> None:
        self.catalog = catalog
        self.group = group
        self.topics = topics
        self.worker = worker
        self._subscription = subscription
        """What it names as it joins, beside its topics; see Catalog.join."""
        self._record: GroupRecord | None = None
        self._places: list[Place] = []
        self._maintenance = Maintenance(catalog.topics, worker)
        self._sweeps = Sweeps(catalog.topics, catalog.group_keys)
        self._prefer = "ready"
        self._found_at = 0.0
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
        """Every partition, anew; those that are known keep their turn."""
        self._found_at = time.monotonic()
        found = yield from self.catalog.groups.places(self.group, self.topics)
        kept = [place for place in self._places if place in found]
        self._places = [*kept, *(place for place in found if place not in kept)]

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
        invisible_ms = _invisible_ms(invisible_duration)
        end = time.monotonic() + seconds(wait, name="wait", maximum=LONGEST_WAIT_S)
        yield from self.join()
        while True:
            if time.monotonic() >= self._found_at + _LOOK_EVERY_S:
                yield from self._find_places()
            if time.monotonic() >= self._sweeps.next_at:
                yield from self._sweeps.round({place.keys.partition for place in self._places})
            asked_ns = time.time_ns()
            received, look_again_s = yield from self._look_everywhere(most, invisible_ms)
            if received and observer.installed is not None:
                namespace = self.catalog.namespace
                observer.installed.received(namespace, received, self.worker, asked_ns)
            rest = end - time.monotonic()
            if received or rest <= 0:
                return received
            wakes = tuple(keys.wake for _, _, keys in self._open_places())
            yield Block(wakes, min(rest, look_again_s))

    def ack(self, messages: Acknowledgeable | Iterable[Acknowledgeable]) -> Operation[None]:
        """Commit one message or several, given as messages or receipt handles.

        Raises:
            InvalidReceiptHandle: For at least one the lease has ended, it was acknowledged
                before, or the handle is malformed; the others are committed.
        """
        yield from self.join()
        if not isinstance(messages, Message | str | Iterable):
            refuse("message", messages, _ACKNOWLEDGEABLE)
        items = [messages] if isinstance(messages, Message | str) else list(messages)
        handles = [self._handle(item) for item in items]
        with self._watched(observer.ACK, items, handles) as watch:
            refused = yield from self._commit(handles)
            watch.done(refused)
        if refused:
            raise InvalidReceiptHandle(_over(refused))

    def _watched(
        self,
        verb: str,
        items: Sequence[Acknowledgeable],
        handles: Sequence[ReceiptHandle],
    ) -> AbstractContextManager[observer.Settling]:
        if observer.installed is None:
            return _UNSEEN
        messages = [item if isinstance(item, Message) else None for item in items]
        leases = list(zip(handles, messages, strict=True))
        return observer.settling(self.catalog.namespace, verb, leases, self.worker)

    def _commit(self, handles: Sequence[ReceiptHandle]) -> Operation[list[str]]:
        """Commit them; the ids of those whose lease was over."""
        refused: list[str] = []
        for topic, partition in dict.fromkeys((h.topic, h.partition) for h in handles):
            here = [h for h in handles if (h.topic, h.partition) == (topic, partition)]
            keys = self.catalog.group_keys(topic, partition, self.group)
            for batch in batches(here):
                refused += yield from self._commit_batch(keys, batch)
        return refused

    def _commit_batch(
        self, keys: GroupKeys, batch: Sequence[ReceiptHandle]
    ) -> Operation[list[str]]:
        """The same in one place, in as many calls as the bytes of the bodies need."""
        refused: list[str] = []
        for _ in range(len(batch)):
            receipts = [handle.receipt for handle in batch]
            verdicts = yield succeed(keys, receipts, worker=self.worker, strict=True)
            answered = list(zip(batch, verdicts, strict=True))
            refused += [h.id for h, verdict in answered if verdict not in (OK, LATER)]
            batch = [h for h, verdict in answered if verdict == LATER]
            if not batch:
                break
        return refused

    def change_invisible_duration(
        self, message: Acknowledgeable, duration: Duration
    ) -> Operation[str]:
        """Move the end of a live lease; it counts from now.

        Args:
            message: The message (its receipt handle is brought up to date) or a receipt handle.
            duration: 10 ms to 12 h, or 0: visible at once, the attempt not counted.

        Returns:
            The new receipt handle; the old one is stale.

        Raises:
            InvalidReceiptHandle: The lease has ended, or the handle is malformed.
        """
        yield from self.join()
        handle = self._handle(message)
        duration_ms = 0 if duration == 0 else _invisible_ms(duration)
        keys = self.catalog.group_keys(handle.topic, handle.partition, self.group)
        started = time.monotonic()
        verb = observer.CHANGE if duration_ms else observer.NACK
        with self._watched(verb, [message], [handle]) as watch:
            answer = yield change_visibility(
                keys, handle.receipt, worker=self.worker, duration_ms=duration_ms
            )
            over = answer in (STALE, GONE)
            watch.done([handle.id] if over else [])
        if over:
            raise InvalidReceiptHandle(_over([handle.id]))
        if isinstance(message, Message):
            message._moved(answer, started + duration_ms / 1000)  # noqa: SLF001 - its own lease
        return str(handle._replace(lease_no=answer))

    def _handle(self, item: object) -> ReceiptHandle:
        if not isinstance(item, Message | str):
            refuse("message", item, _ACKNOWLEDGEABLE)
        text = item.receipt_handle if isinstance(item, Message) else item
        handle = ReceiptHandle.parse(text)
        known = any((handle.topic, handle.partition) == place[:2] for place in self._places)
        if handle.group != self.group or not known:
            raise InvalidReceiptHandle(
                f"receipt handle {show(text)} belongs to group {show(handle.group)} of topic"
                f" {show(handle.topic)}, not to this consumer of {show(self.group)}"
            )
        return handle

    def _look_everywhere(
        self, most: int, invisible_ms: int
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
                leased = yield from self._lease(place, want, invisible_ms)
                expires = started + invisible_ms / 1000
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

    def _lease(self, place: Place, want: int, invisible_ms: int) -> Operation[Leased]:
        """Lease as many as there are, and the group's rate limit has tokens for."""
        if not self._rated:
            leased = yield from self._lease_and_maintain(place, want, invisible_ms)
            if leased.status != "RATED":
                return leased
        bucket = place.keys.bucket
        tokens: Tokens = yield rate_take(bucket, want=want)
        self._rated = tokens.given != 0
        leased = yield from self._lease_and_maintain(place, tokens.given or want, invisible_ms)
        self._rated = bool(leased.rate)
        if tokens.given == 0:
            return leased._replace(next_due_ms=tokens.wait_ms)
        if tokens.given is not None and tokens.given > len(leased.ids):
            yield rate_take(bucket, want=0, returned=tokens.given - len(leased.ids))
        return leased

    def _lease_and_maintain(self, place: Place, want: int, invisible_ms: int) -> Operation[Leased]:
        """Lease, and move what turns out to be due."""
        keys = place.keys
        command: Command[Leased] = lease(
            keys,
            worker=self.worker,
            want=want,
            visibility_ms=invisible_ms,
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
        yield from self._maintenance.move([Due(keys, promote, expire, hold_ms=invisible_ms // 3)])
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


def _invisible_ms(duration: Duration) -> int:
    return milliseconds(
        duration, name="invisible_duration", minimum=MIN_INVISIBLE_S, maximum=MAX_INVISIBLE_S
    )


def _over(ids: Sequence[str]) -> str:
    return (
        f"the receipt of {shown_ids(ids)} is not valid any more: the lease ended, or the message"
        " was acknowledged already; nothing was changed for it"
    )
