"""Spans counted on export: what the queue dropped or the collector rejected is known.

The SDK's batch processor drops spans when its queue is full, and only its experimental metrics
count them. So this processor passes on no more spans than the queue has room for, and counts those
that it drops.
"""

import logging
import threading
from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from rqretry.otel.sampler import WrappedProcessor

log = logging.getLogger("rqretry")

EXPORTED, REFUSED, DROPPED = "exported", "refused", "dropped"


class Counts:
    """Counts of spans that ended and were to be exported. Thread-safe.

    Attributes:
        ended: All of them.
        exported: Accepted by the collector.
        refused: Rejected by the collector, or it could not be reached.
        dropped: The queue was full.
    """

    def __init__(self, room: int) -> None:
        self._lock = threading.Lock()
        self._room = room
        self._waiting = 0
        self.ended = 0
        self.exported = 0
        self.refused = 0
        self.dropped = 0

    def admit(self) -> bool:
        """A span has ended; whether there is room for it in the queue."""
        with self._lock:
            self.ended += 1
            if self._waiting < self._room:
                self._waiting += 1
                return True
            self.dropped += 1
            first = self.dropped == 1
        if first:
            log.warning("%d spans wait for export: further ones are dropped", self._room)
        return False

    def take(self, count: int) -> None:
        """So many have left the queue and are being sent."""
        with self._lock:
            self._waiting -= count

    def export(self, count: int, *, taken: bool) -> None:
        """An export has ended."""
        with self._lock:
            self.exported += count if taken else 0
            self.refused += 0 if taken else count

    def by_result(self) -> dict[str, int]:
        """The counts by result, for metrics."""
        with self._lock:
            return {EXPORTED: self.exported, REFUSED: self.refused, DROPPED: self.dropped}

    @property
    def missing(self) -> int:
        """Ended and not exported: refused, dropped from a full queue, or not exported yet."""
        return self.ended - self.exported

    def __str__(self) -> str:
        """What is missing, for people."""
        rest = self.missing - self.dropped - self.refused
        return (
            f"{self.missing} of {self.ended} spans were not exported: {self.dropped} dropped"
            f" from a full queue, {self.refused} rejected by the collector, {rest} not sent in time"
        )


class CountingExporter(SpanExporter):
    """Wraps an exporter and counts."""

    def __init__(self, inner: SpanExporter, counts: Counts) -> None:
        self._inner = inner
        self._counts = counts

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export; an exporter that raises has exported nothing."""
        self._counts.take(len(spans))
        taken = False
        try:
            result = self._inner.export(spans)
            taken = result is SpanExportResult.SUCCESS
        finally:
            self._counts.export(len(spans), taken=taken)
        return result

    def shutdown(self) -> None:
        """Close the connection."""
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing is buffered here."""
        return self._inner.force_flush(timeout_millis)


class CountingProcessor(WrappedProcessor):
    """Wraps a batch processor and counts; its queue never gets more than it has room for."""

    def __init__(self, inner: SpanProcessor, counts: Counts) -> None:
        super().__init__(inner)
        self._counts = counts

    def on_end(self, span: ReadableSpan) -> None:
        """Count what is to be exported, and pass it on where there is room."""
        sampled = span.context is not None and span.context.trace_flags.sampled
        if not sampled or self._counts.admit():
            self._inner.on_end(span)

    def take(self, span: ReadableSpan) -> None:
        """The same for a span that is sampled."""
        if self._counts.admit():
            self._inner.on_end(span)
