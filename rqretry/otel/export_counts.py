"""Spans counted on their way out: what the queue or the collector did not take is known.

The SDK's batch processor drops spans from a full queue and tells nobody who could count them: its
own metrics are experimental. So a gate lets no more spans in than its queue has room for, and
counts those that it turns away.
"""

import logging
import threading
from collections.abc import Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

log = logging.getLogger("rqretry")

EXPORTED, REFUSED, DROPPED = "exported", "refused", "dropped"


class Counts:
    """What became of the spans that ended and were to be exported. Thread-safe.

    Attributes:
        ended: All of them.
        exported: Those that the collector took.
        refused: Those that it did not take, or that did not reach it.
        dropped: Those that found the queue full.
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
        """One has ended; whether there is room for it in the queue."""
        with self._lock:
            self.ended += 1
            if self._waiting < self._room:
                self._waiting += 1
                return True
            self.dropped += 1
            first = self.dropped == 1
        if first:
            log.warning("%d spans wait to be exported: others are dropped from now on", self._room)
        return False

    def take(self, count: int) -> None:
        """So many have left the queue, on their way to the collector."""
        with self._lock:
            self._waiting -= count

    def export(self, count: int, *, taken: bool) -> None:
        """An export has ended."""
        with self._lock:
            self.exported += count if taken else 0
            self.refused += 0 if taken else count

    def by_result(self) -> dict[str, int]:
        """What is known of them, for metrics."""
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
            f"{self.missing} of {self.ended} spans were not exported: {self.dropped} found the"
            f" queue full, {self.refused} the collector did not take, {rest} were not sent in time"
        )


class CountingExporter(SpanExporter):
    """Another exporter, counted."""

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
        """Nothing is held here."""
        return self._inner.force_flush(timeout_millis)


class CountingProcessor(SpanProcessor):
    """A batch processor, counted; its queue never gets more than it has room for."""

    def __init__(self, inner: SpanProcessor, counts: Counts) -> None:
        self._inner = inner
        self._counts = counts

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing to count."""
        self._inner.on_start(span, parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        """Count what is to be exported, and hand it on where there is room."""
        sampled = span.context is not None and span.context.trace_flags.sampled
        if not sampled or self._counts.admit():
            self._inner.on_end(span)

    def take(self, span: ReadableSpan) -> None:
        """The same, of one that is sampled."""
        if self._counts.admit():
            self._inner.on_end(span)

    def shutdown(self) -> None:
        """Export the rest."""
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Export what is held."""
        return self._inner.force_flush(timeout_millis)
