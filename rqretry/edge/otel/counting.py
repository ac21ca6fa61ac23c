"""Spans counted on their way out: what the queue or the collector did not take is known."""

import threading
from collections.abc import Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult


class Counts:
    """How many spans ended, and how many of them the collector took. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.ended = 0
        self.exported = 0
        self.refused = 0

    def end(self) -> None:
        """One has ended and is to be exported."""
        with self._lock:
            self.ended += 1

    def export(self, count: int, *, taken: bool) -> None:
        """An export has ended."""
        with self._lock:
            self.exported += count if taken else 0
            self.refused += 0 if taken else count

    @property
    def missing(self) -> int:
        """Ended and not exported: refused, dropped from a full queue, or not exported yet."""
        return self.ended - self.exported


class CountingExporter(SpanExporter):
    """Another exporter, counted."""

    def __init__(self, inner: SpanExporter, counts: Counts) -> None:
        self._inner = inner
        self._counts = counts

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export; an exporter that raises has exported nothing."""
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
    """Another processor, counted."""

    def __init__(self, inner: SpanProcessor, counts: Counts) -> None:
        self._inner = inner
        self._counts = counts

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing to count."""
        self._inner.on_start(span, parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        """Count what is to be exported."""
        if span.context is not None and span.context.trace_flags.sampled:
            self._counts.end()
        self._inner.on_end(span)

    def shutdown(self) -> None:
        """Export the rest."""
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Export what is held."""
        return self._inner.force_flush(timeout_millis)
