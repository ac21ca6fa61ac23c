"""Tracing of a worker process, as `rqretry worker --otlp` does it: the SDK, and batch export."""

from rqretry import observing
from rqretry.edge.otel.counting import Counts
from rqretry.edge.otel.setup import Tracing
from rqretry.tracing import TraceSettings

PATIENCE_S = 60.0


def trace(endpoint: str) -> Tracing:
    """Trace this process from now on, every span."""
    tracing = Tracing(TraceSettings(endpoint, "benchmark"))
    observing.install(tracing.observer)
    return tracing


def finish(tracing: Tracing) -> Counts:
    """Export what is left; what became of the spans."""
    tracing.stop(PATIENCE_S)
    observing.install(None)
    return tracing.counts
