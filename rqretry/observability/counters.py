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

from rqretry.core.failure_record import kind_in
from rqretry.core.message import Message
from rqretry.observability.observer import (
    DEAD_LETTER,
    FAILURE,
    Attempt,
    BatchAttempt,
    BatchCall,
    Call,
    Leased,
    Observer,
    Publication,
    Redrive,
    Settling,
    Unseen,
    Watched,
)

MOST_REASONS, OTHER_REASONS = 20, "other"
"""So many reasons of failed attempts are told apart in a group; all others are one."""
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
    """

    attempts: dict[tuple[str, ...], float] = field(default_factory=dict)
    published: dict[tuple[str, ...], float] = field(default_factory=dict)
    seconds: dict[tuple[str, ...], list[float]] = field(default_factory=dict)
    spans: dict[tuple[str, ...], float] = field(default_factory=dict)
    failed: dict[tuple[str, ...], float] = field(default_factory=dict)

    def add(self, other: "Figures") -> None:
        """Add another process's."""
        for name in ("attempts", "published", "spans"):
            counts = getattr(self, name)
            for label, count in getattr(other, name).items():
                counts[label] = counts.get(label, 0) + count
        for label, buckets in other.seconds.items():
            old = self.seconds.get(label, [0.0] * len(buckets))
            self.seconds[label] = [a + b for a, b in zip(old, buckets, strict=True)]
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

    def attempted(self, topic_and_group: tuple[str, str], outcome: str, seconds: float) -> None:
        """An attempt ended."""
        label = (*topic_and_group, outcome)
        with self._lock:
            figures = self._figures
            figures.attempts[label] = figures.attempts.get(label, 0) + 1
            buckets = figures.seconds.get(topic_and_group)
            if buckets is None:
                buckets = figures.seconds[topic_and_group] = [0.0] * (len(BUCKETS_S) + 2)
            buckets[bisect_left(BUCKETS_S, seconds)] += 1
            buckets[-1] += seconds


class _Publication:
    def __init__(
        self, tally: Tally, topic: str, items: list[Any], inner: Publication | None
    ) -> None:
        self._tally = tally
        self._topic = topic
        self._inner = inner
        self.items = items if inner is None else inner.items

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
        self._labels = (message.topic, message.group)
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
            self._tally.attempted(self._labels, outcome, seconds)
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


class _Redrive:
    def __init__(self, count: int) -> None:
        self.traces = [""] * count

    def done(self, sent: Sequence[bool]) -> None:
        """The server counts."""
