"""A collector inside the test process: OTLP over HTTP and gRPC, in the official protobufs."""

import gzip
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.trace.v1 import trace_pb2

KINDS = {1: "internal", 2: "server", 3: "client", 4: "producer", 5: "consumer"}


@dataclass(frozen=True)
class Received:
    """One span as it arrived."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, Any]
    links: list[tuple[str, str]]
    """Span id, and what the link is: rqretry.link."""
    link_attributes: list[dict[str, Any]]
    events: list[tuple[str, dict[str, Any]]]
    failed: bool
    shown: str
    start_ns: int
    end_ns: int
    service: str

    def __getitem__(self, name: str) -> Any:
        return self.attributes[name]


class Collector:
    """Collects spans; `http` and `grpc` are its URLs."""

    def __init__(self) -> None:
        self._spans: list[Received] = []
        self._more = threading.Condition()
        self.refusing = False
        self._open = threading.Event()
        self._open.set()
        self._http = _HttpServer(self)
        self._grpc = grpc.server(ThreadPoolExecutor(2))
        add_TraceServiceServicer_to_server(_Servicer(self), self._grpc)  # type: ignore[no-untyped-call]
        port = self._grpc.add_insecure_port("127.0.0.1:0")
        self._grpc.start()
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        self.http = f"http://127.0.0.1:{self._http.server_address[1]}"
        self.grpc = f"http://127.0.0.1:{port}"

    @property
    def spans(self) -> list[Received]:
        """What has arrived, by its start."""
        with self._more:
            return sorted(self._spans, key=lambda span: span.start_ns)

    def hold(self) -> None:
        """Answer nobody until `let_go`."""
        self._open.clear()

    def let_go(self) -> None:
        """Answer again."""
        self._open.set()

    def add(self, request: ExportTraceServiceRequest) -> None:
        """Take what was exported."""
        self._open.wait(30)
        with self._more:
            self._spans += _read(request)
            self._more.notify_all()

    def wait(self, count: int, seconds: float = 10.0) -> list[Received]:
        """Until so many spans have arrived, and no more than these."""
        with self._more:
            arrived = self._more.wait_for(lambda: len(self._spans) >= count, seconds)
        spans = self.spans
        assert arrived, f"only {[span.name for span in spans]}"
        assert len(spans) == count, [span.name for span in spans]
        return spans

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._grpc.stop(None).wait()


class _Servicer(TraceServiceServicer):
    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        if self._collector.refusing:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "refused")
        self._collector.add(request)
        return ExportTraceServiceResponse()


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, _HttpServer)
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            data = gzip.decompress(data)
        collector = self.server.collector
        good = self.path == "/v1/traces" and not collector.refusing
        if good:
            collector.add(ExportTraceServiceRequest.FromString(data))
        answer = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200 if good else 400)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Quiet."""


def _read(request: ExportTraceServiceRequest) -> Iterable[Received]:
    for resource in request.resource_spans:
        service = str(_attributes(resource.resource.attributes).get("service.name", ""))
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield _span(span, service)


def _span(span: trace_pb2.Span, service: str) -> Received:
    links = [
        (link.span_id.hex(), str(_attributes(link.attributes).get("rqretry.link", "")))
        for link in span.links
    ]
    return Received(
        span.name,
        KINDS.get(span.kind, ""),
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        _attributes(span.attributes),
        links,
        [_attributes(link.attributes) for link in span.links],
        [(event.name, _attributes(event.attributes)) for event in span.events],
        span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
        span.status.message,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        service,
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
