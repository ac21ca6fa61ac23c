"""What a worker process counts and times for its metrics port; nothing if there is none.

Labels are topics, groups and outcomes: as many as the app declares, and no more.
"""

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from rqretry.core.failure_record import kind_in, read_attempt_record
from rqretry.core.message import Message
from rqretry.core.waits import DueTimes, Waits
from rqretry.observability.observer import (
    DEAD_LETTER,
    FAILURE,
    Attempt,
    BatchAttempt,
    BatchCall,
    Call,
    Decision,
    Leased,
    Observer,
    Publication,
    Published,
    Redrive,
    Settling,
    Unseen,
    Watched,
)

MOST_REASONS, OTHER_REASONS = 20, "other"
"""So many reasons of failed attempts are told apart in a group; all others are one."""
WAIT_BUCKETS_S = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 21600.0)
BUCKETS_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 900.0)


@dataclass(slots=True)
class Figures:
    """Counts that can be sent through a pipe, and added up.

    Attributes:
        attempts: By (topic, group, outcome).
        published: By (topic, "ok" or "error").
        seconds: By (topic, group): how many attempts per bucket, one more for what is slower than
            all of them, and their sum.
        spans: By ("exported", "refused" or "dropped",), of a process that traces.
        failed: Failed attempts by (topic, group, reason): the exception's type, or the cause.
        queued: As `seconds`, how long messages waited to be leased since they were due.
        buffered: As `seconds`, how long they waited for a free slot since they were leased.
    """

    attempts: dict[tuple[str, ...], float] = field(default_factory=dict)
    published: dict[tuple[str, ...], float] = field(default_factory=dict)
    seconds: dict[tuple[str, ...], list[float]] = field(default_factory=dict)
    spans: dict[tuple[str, ...], float] = field(default_factory=dict)
    failed: dict[tuple[str, ...], float] = field(default_factory=dict)
    queued: dict[tuple[str, ...], list[float]] = field(default_factory=dict)
    buffered: dict[tuple[str, ...], list[float]] = field(default_factory=dict)

    def add(self, other: "Figures") -> None:
        """Add another process's."""
        for name in ("attempts", "published", "spans"):
            counts = getattr(self, name)
            for label, count in getattr(other, name).items():
                counts[label] = counts.get(label, 0) + count
        for name in ("seconds", "queued", "buffered"):
            histogram = getattr(self, name)
            for label, buckets in getattr(other, name).items():
                old = histogram.get(label, [0.0] * len(buckets))
                histogram[label] = [a + b for a, b in zip(old, buckets, strict=True)]
        for (topic, group, reason), count in other.failed.items():
            self.count_failed(topic, group, reason, count)

    def count_failed(self, topic: str, group: str, reason: str, count: float = 1) -> None:
        """Add failed attempts, the rarer reasons of a group as one."""
        label = (topic, group, reason)
        if label not in self.failed:
            if sum(known[:2] == label[:2] for known in self.failed) >= MOST_REASONS:
                label = (topic, group, OTHER_REASONS)
            self.failed.setdefault(label, 0)
        self.failed[label] += count

    def plain(self) -> list[list[list[Any]]]:
        """For JSON."""
        families: tuple[Mapping[tuple[str, ...], Any], ...] = (
            self.attempts, self.published, self.seconds, self.spans, self.failed,
            self.queued, self.buffered,
        )  # fmt: skip
        return [[[list(label), value] for label, value in family.items()] for family in families]

    @staticmethod
    def read(plain: Any) -> "Figures":
        """What `plain` wrote."""
        return Figures(*({tuple(label): value for label, value in family} for family in plain))


class Tally:
    """An observer that counts; it passes everything on to another one, if there is one."""

    def __init__(self, inner: Observer | None = None) -> None:
        self._inner = inner
        self._figures = Figures()
        self._lock = threading.Lock()
        self.due = DueTimes()

    def snapshot(self) -> list[list[list[Any]]]:
        """The figures of now, for JSON."""
        with self._lock:
            self._figures.spans = {(result,): count for result, count in self.spans().items()}
            return self._figures.plain()

    def publishing(
        self,
        namespace: str,
        topic: str,
        items: Sequence[Any],
        *,
        batch: bool,
        transaction: str = "",
    ) -> Publication:
        """A publish begins."""
        inner = None
        if self._inner is not None:
            inner = self._inner.publishing(
                namespace, topic, items, batch=batch, transaction=transaction
            )
        return _Publication(self, topic, list(items), inner)

    def attempting(self, namespace: str, message: Message[Any], worker: str) -> Attempt:
        """An attempt begins."""
        inner = None
        if self._inner is not None:
            inner = self._inner.attempting(namespace, message, worker)
        return _Attempt(self, message, inner)

    def attempting_batch(
        self, namespace: str, messages: Sequence[Message[Any]], worker: str
    ) -> BatchAttempt:
        """A batch begins: each of its messages is an attempt, which takes as long as the batch."""
        inner = None
        if self._inner is not None:
            inner = self._inner.attempting_batch(namespace, messages, worker)
        return _BatchAttempt(self, messages, inner)

    def redriving(
        self, namespace: str, group: str, dead_letters: Sequence[Any], actor: str
    ) -> Redrive:
        """Dead letters are about to be sent back; the server counts them."""
        if self._inner is not None:
            return self._inner.redriving(namespace, group, dead_letters, actor)
        return _Redrive(len(dead_letters))

    def received(
        self, namespace: str, messages: Sequence[Message[Any]], client: str, asked_ns: int
    ) -> None:
        """A simple consumer got messages; the server counts them."""
        if self._inner is not None:
            self._inner.received(namespace, messages, client, asked_ns)

    def settling(self, namespace: str, verb: str, items: Sequence[Leased], client: str) -> Settling:
        """A simple consumer settles; the server counts."""
        if self._inner is not None:
            return self._inner.settling(namespace, verb, items, client)
        return Unseen()

    def deciding(
        self, namespace: str, transaction: str, decision: str, published: Sequence[Published]
    ) -> Decision:
        """A transaction is being decided; the server counts."""
        if self._inner is not None:
            return self._inner.deciding(namespace, transaction, decision, published)
        return _Decision()

    def dead_lettered(self, namespace: str, dead_letters: Sequence[Any], worker: str) -> None:
        """Messages died because their leases ran out; the server counts them."""
        if self._inner is not None:
            self._inner.dead_lettered(namespace, dead_letters, worker)

    def carrier(self) -> dict[str, str]:
        """As the other observer."""
        return {} if self._inner is None else self._inner.carrier()

    def within(self, carrier: Mapping[str, str]) -> AbstractContextManager[None]:
        """As the other observer."""
        return nullcontext() if self._inner is None else self._inner.within(carrier)

    def elsewhere(self) -> Callable[[], None] | None:
        """Handlers' processes count nothing: their attempts are counted here."""
        return None if self._inner is None else self._inner.elsewhere()

    def spans(self) -> Mapping[str, int]:
        """As the other observer."""
        return {} if self._inner is None else self._inner.spans()

    def flush(self) -> None:
        """Nothing is held here."""
        if self._inner is not None:
            self._inner.flush()

    def published(self, topic: str, result: str, count: int) -> None:
        """A publish ended; from any thread."""
        with self._lock:
            known = self._figures.published
            known[topic, result] = known.get((topic, result), 0) + count

    def failed(self, topic_and_group: tuple[str, str], record: str) -> None:
        """An attempt failed, as its record says."""
        with self._lock:
            self._figures.count_failed(*topic_and_group, kind_in(record))

    def attempted(
        self, topic_and_group: tuple[str, str], outcome: str, seconds: float, waits: Waits | None
    ) -> None:
        """An attempt ended; `waits`: of its message before, None where that is not known."""
        label = (*topic_and_group, outcome)
        with self._lock:
            figures = self._figures
            figures.attempts[label] = figures.attempts.get(label, 0) + 1
            _record(figures.seconds, topic_and_group, BUCKETS_S, seconds)
            if waits is not None:
                waited, buffered = waits.queue_ms / 1000, waits.buffer_ms / 1000
                _record(figures.queued, topic_and_group, WAIT_BUCKETS_S, waited)
                _record(figures.buffered, topic_and_group, WAIT_BUCKETS_S, buffered)


def _record(
    histogram: dict[tuple[str, ...], list[float]],
    label: tuple[str, ...],
    bounds: Sequence[float],
    seconds: float,
) -> None:
    buckets = histogram.get(label)
    if buckets is None:
        buckets = histogram[label] = [0.0] * (len(bounds) + 2)
    buckets[bisect_left(bounds, seconds)] += 1
    buckets[-1] += seconds


class _Publication:
    def __init__(
        self, tally: Tally, topic: str, items: list[Any], inner: Publication | None
    ) -> None:
        self._tally = tally
        self._topic = topic
        self._inner = inner
        self.items = items if inner is None else inner.items
        self.traces = [""] * len(items) if inner is None else inner.traces

    def done(self, answers: Sequence[Any]) -> None:
        if self._inner is not None:
            self._inner.done(answers)
        self._tally.published(self._topic, "ok", len(answers))

    def failed(self, error: BaseException) -> None:
        if self._inner is not None:
            self._inner.failed(error)
        self._tally.published(self._topic, "error", len(self.items))


class _Watched:
    def __init__(self, tally: Tally, message: Message[Any], inner: Watched | None) -> None:
        self._tally = tally
        self._message = message
        self._labels = (message.topic, message.group)
        self._waits = tally.due.waits(message, read_attempt_record(message._error))  # noqa: SLF001 - also a redrive
        self._inner = inner
        self._over = False
        self._began = time.perf_counter()
        self._seconds: float | None = None
        self.trace = "" if inner is None else inner.trace

    def ended(self) -> None:
        """Its handler has ended."""
        self._seconds = time.perf_counter() - self._began

    def settled(
        self, outcome: str, *, record: str = "", level: int = 0, due_ms: int | None = None
    ) -> None:
        if self._inner is not None:
            self._inner.settled(outcome, record=record, level=level, due_ms=due_ms)
        if not self._over:
            self._over = True
            now = time.perf_counter() - self._began
            seconds = now if self._seconds is None else self._seconds
            self._tally.attempted(self._labels, outcome, seconds, self._waits)
            if due_ms is not None and not record:
                self._tally.due.note(self._message, due_ms)
            if outcome in (FAILURE, DEAD_LETTER):
                self._tally.failed(self._labels, record)


class _Attempt(_Watched):
    def __init__(self, tally: Tally, message: Message[Any], inner: Attempt | None) -> None:
        super().__init__(tally, message, inner)
        self._around = None if inner is None else inner.around

    def around(self, call: Call) -> Call:
        inner = call if self._around is None else self._around(call)

        async def timed(message: Message[Any]) -> Any:
            try:
                return await inner(message)
            finally:
                self.ended()

        return timed


class _BatchAttempt:
    def __init__(
        self, tally: Tally, messages: Sequence[Message[Any]], inner: BatchAttempt | None
    ) -> None:
        each = [None] * len(messages) if inner is None else inner.messages
        self._inner = inner
        self.messages = [
            _Watched(tally, message, watched)
            for message, watched in zip(messages, each, strict=True)
        ]

    def around(self, call: BatchCall) -> BatchCall:
        inner = call if self._inner is None else self._inner.around(call)

        async def timed() -> Any:
            try:
                return await inner()
            finally:
                for watched in self.messages:
                    watched.ended()

        return timed


class _Decision:
    def done(self, *, decided: bool) -> None:
        """The server counts."""

    def failed(self, error: BaseException) -> None:
        """Nothing."""


class _Redrive:
    def __init__(self, count: int) -> None:
        self.traces = [""] * count

    def done(self, sent: Sequence[bool]) -> None:
        """The server counts."""
