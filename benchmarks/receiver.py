"""An OTLP collector in a process of its own, which counts the spans it is sent."""

import ctypes
import gzip
import multiprocessing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

_spawn = multiprocessing.get_context("spawn")
_START_S = 60.0


class Receiver:
    """A collector; a context manager.

    Attributes:
        url: Where to export to.
    """

    def __init__(self) -> None:
        self._spans: Any = _spawn.Value(ctypes.c_ulonglong, 0)
        self._mine, theirs = _spawn.Pipe(duplex=False)
        self._process = _spawn.Process(target=_main, args=(self._spans, theirs), daemon=True)
        self.url = ""

    @property
    def spans(self) -> int:
        """How many spans have arrived."""
        return int(self._spans.value)

    def __enter__(self) -> Self:
        self._process.start()
        assert self._mine.poll(_START_S), "the receiver did not start"
        self.url = f"http://127.0.0.1:{self._mine.recv()}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.join()
        self._mine.close()


def _main(spans: Any, report: Any) -> None:
    with _Server(spans) as server:
        report.send(server.server_address[1])
        server.serve_forever()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, spans: Any) -> None:
        self.spans = spans
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # the exporter keeps its connection

    def do_POST(self) -> None:
        """Take what was exported."""
        assert isinstance(self.server, _Server)
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            data = gzip.decompress(data)
        request = ExportTraceServiceRequest.FromString(data)
        count = sum(
            len(scope.spans)
            for resource in request.resource_spans
            for scope in resource.scope_spans
        )
        with self.server.spans.get_lock():
            self.server.spans.value += count
        answer = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Nothing."""
