"""OTLP over gRPC, with our encoder."""

from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan

from rqretry.otel.otlp_encode import SpanEncoder


class GrpcExporter(OTLPSpanExporter):
    """OpenTelemetry's exporter, with all its settings; only the encoding is ours."""

    def __init__(self, endpoint: str | None) -> None:
        super().__init__(endpoint)
        self._encoder = SpanEncoder()

    def _translate_data(self, data: Sequence[ReadableSpan]) -> ExportTraceServiceRequest:
        """What the exporter sends: parsing bytes is cheap, building protobufs in Python is not."""
        request: ExportTraceServiceRequest = ExportTraceServiceRequest.FromString(
            self._encoder.request(data)
        )
        return request
