"""Tracing and metrics through OpenTelemetry (the extra `rqretry[otel]`).

Programs that set up OpenTelemetry themselves call `instrument()`; `--otlp` does it for them.
"""

from rqretry.otel.instrumentation import instrument, uninstrument

__all__ = ["instrument", "uninstrument"]
