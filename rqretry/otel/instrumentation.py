"""Tracing for programs that set up OpenTelemetry themselves (the extra `rqretry[otel]`)."""

from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from rqretry.observability import observer
from rqretry.otel.observer import OtelObserver

__all__ = ["instrument", "uninstrument"]


def instrument(
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    *,
    one_trace: bool = False,
) -> None:
    """Trace and measure every publish, attempt, dead letter and redrive of this process.

    A producer span for each message published, its context in the message's headers as W3C
    traceparent; a consumer span for each attempt. Call it once, after the providers are
    set up; a second call replaces the settings.

    Args:
        tracer_provider: Default OpenTelemetry's global one.
        meter_provider: Default OpenTelemetry's global one.
        one_trace: All attempts of a message in the trace of its publish; default a trace for
            each later attempt, linked to the publish and to the attempt before.
    """
    observer.install(OtelObserver(tracer_provider, meter_provider, one_trace=one_trace))


def uninstrument() -> None:
    """Stop tracing and measuring."""
    observer.install(None)
