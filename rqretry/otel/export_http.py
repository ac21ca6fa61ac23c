"""OTLP over HTTP, with our encoder."""

from collections.abc import Sequence
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from rqretry.core.settings import variable
from rqretry.otel.otlp_encode import SpanEncoder


class HttpExporter(OTLPSpanExporter):
    """OpenTelemetry's exporter, with all its settings; only the encoding is ours.

    It has no public way to send bytes: where its client is not the one we know, or its own metrics
    are enabled, it encodes as usual.
    """

    def __init__(self, endpoint: str | None) -> None:
        super().__init__(endpoint)
        measured = (variable("OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED") or "").lower() == "true"
        client: Any = None if measured else getattr(self, "_client", None)
        self._send: Any = getattr(client, "export", None)
        self._encoder = SpanEncoder()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans, and wait for the answer."""
        if self._send is None:
            return super().export(spans)
        sent = self._send(self._encoder.request(spans))
        return SpanExportResult.SUCCESS if sent.success else SpanExportResult.FAILURE
