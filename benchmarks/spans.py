"""Tracing of a worker process, as `rqretry worker --otlp` does it: the SDK, and batch export."""

from rqretry.observability import observer
from rqretry.observability.trace_settings import TraceSettings
from rqretry.otel.export_counts import Counts
from rqretry.otel.setup import Tracing

PATIENCE_S = 60.0


def trace(endpoint: str) -> Tracing:
    """Trace this process from now on, every span."""
    tracing = Tracing(TraceSettings(endpoint, "benchmark"))
    observer.install(tracing.observer)
    return tracing


def finish(tracing: Tracing) -> Counts:
    """Export what is left; what became of the spans."""
    tracing.stop(PATIENCE_S)
    observer.install(None)
    return tracing.counts
