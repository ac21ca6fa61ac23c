"""Tracing set up by rqretry itself, for `--otlp` and OTEL_EXPORTER_OTLP_ENDPOINT.

A program that sets up OpenTelemetry on its own calls `rqretry.otel.instrument()` instead.
"""

import logging
import os
import platform
import socket
import sys
import threading
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import (
    HOST_NAME,
    PROCESS_EXECUTABLE_NAME,
    PROCESS_PID,
    PROCESS_RUNTIME_NAME,
    PROCESS_RUNTIME_VERSION,
    SERVICE_INSTANCE_ID,
    SERVICE_NAME,
    Resource,
)
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.sdk.trace.sampling import Sampler

from rqretry.core.errors import ConfigError, show
from rqretry.core.limits import read_whole
from rqretry.core.settings import variable
from rqretry.observability import observer
from rqretry.observability.trace_settings import TraceSettings
from rqretry.otel.export_counts import CountingExporter, CountingProcessor, Counts
from rqretry.otel.observer import OtelObserver
from rqretry.otel.sampler import FailuresKept, KeepFailures
from rqretry.otel.spans import OwnProcessors, QuickProvider

log = logging.getLogger("rqretry")

QUEUE_SPANS = 16_384
"""A worker ends spans in bursts; OTEL_BSP_MAX_QUEUE_SIZE overrides it."""
_BATCH = 512
FLUSH_S = 2.5
"""A collector that does not answer delays the end of a process by this at most."""
_GRPC_PORT = ":4317"
_PROTOCOLS = ("grpc", "http/protobuf")


class Tracing:
    """The providers of this process, and the observer that feeds them."""

    def __init__(self, settings: TraceSettings) -> None:
        self._stopped = False
        self._room = _queue_size()
        self.counts = Counts(self._room)
        resource = Resource.create(_names(settings))
        sampler = FailuresKept(_sampler()) if settings.keep_failures else None
        limits, processors = SpanLimits(), OwnProcessors()
        self.provider = TracerProvider(
            sampler,
            resource,
            shutdown_on_exit=False,
            active_span_processor=processors,
            span_limits=limits,
        )
        take = self._export_by(_span_exporter(settings), settings)
        processors.settle()
        self._meters = _meter_provider(settings, resource)
        self.observer = OtelObserver(
            QuickProvider(self.provider, limits, processors, take),
            self._meters or NoOpMeterProvider(),
            one_trace=settings.one_trace,
            start=partial(start, settings),
            flush=self.stop,
            counted=self.counts.by_result,
        )

    def _export_by(
        self, exporter: SpanExporter | None, settings: TraceSettings
    ) -> Callable[[ReadableSpan], None]:
        """Export spans; returns the function for one that is sampled and has ended."""
        if exporter is None:
            return _forget
        counted = self._counted(exporter)
        # Sampled spans bypass KeepFailures, which cares only about those that are not.
        processor = KeepFailures(counted) if settings.keep_failures else counted
        self.provider.add_span_processor(processor)
        return counted.take

    def _counted(self, exporter: SpanExporter) -> CountingProcessor:
        counting = CountingExporter(exporter, self.counts)
        size = None if variable("OTEL_BSP_MAX_EXPORT_BATCH_SIZE") else min(_BATCH, self._room)
        try:
            batch = BatchSpanProcessor(counting, self._room, max_export_batch_size=size)
        except ValueError as error:
            raise ConfigError(f"the OTEL_BSP_ variables do not fit together: {error}") from error
        return CountingProcessor(batch, self.counts)

    def stop(self, seconds: float = FLUSH_S) -> None:
        """Export what is buffered, within some seconds, and log what could not be; once."""
        if self._stopped:
            return
        self._stopped = True
        ending = threading.Thread(target=self._shut_down, daemon=True)
        ending.start()
        ending.join(seconds)
        if self.counts.missing:
            log.warning("%s", self.counts)

    def _shut_down(self) -> None:
        self.provider.shutdown()
        if self._meters is not None:
            self._meters.shutdown(FLUSH_S * 1000)


def start(settings: TraceSettings) -> None:
    """Trace this process from now on, until `observer.stop`.

    Raises:
        ConfigError: A setting is not valid.
    """
    if (variable("OTEL_SDK_DISABLED") or "").lower() == "true":
        return
    tracing = Tracing(settings)
    trace.set_tracer_provider(tracing.provider)  # so that spans of handlers join in
    observer.install(tracing.observer)


def _forget(span: ReadableSpan) -> None:
    """Spans are not exported."""


def _queue_size() -> int:
    text = variable("OTEL_BSP_MAX_QUEUE_SIZE")
    if text is None:
        return QUEUE_SPANS
    size = read_whole(text)
    if not size:
        raise ConfigError(f"OTEL_BSP_MAX_QUEUE_SIZE {show(text)} must be a number from 1")
    return size


def _names(settings: TraceSettings) -> dict[str, Any]:
    """What the resource says beside telemetry.sdk.* and OTEL_RESOURCE_ATTRIBUTES.

    Not the process's arguments, as process.command_line would: a URL in them may hold a password.
    """
    pairs = (variable("OTEL_RESOURCE_ATTRIBUTES") or "").split(",")
    given = {pair.partition("=")[0].strip() for pair in pairs}
    if variable("OTEL_SERVICE_NAME"):
        given.add(SERVICE_NAME)
    names = {
        SERVICE_NAME: settings.service,
        HOST_NAME: socket.gethostname(),
        SERVICE_INSTANCE_ID: str(uuid.uuid4()),
        PROCESS_PID: os.getpid(),
        PROCESS_EXECUTABLE_NAME: Path(sys.executable).name,
        PROCESS_RUNTIME_NAME: sys.implementation.name,
        PROCESS_RUNTIME_VERSION: platform.python_version(),
    }
    return {name: value for name, value in names.items() if name not in given}


def _sampler() -> Sampler:
    """The sampler of OTEL_TRACES_SAMPLER, as the SDK reads it."""
    return TracerProvider(shutdown_on_exit=False).sampler


def _span_exporter(settings: TraceSettings) -> SpanExporter | None:
    wanted = variable("OTEL_TRACES_EXPORTER") or "otlp"
    if wanted == "none":
        return None
    if wanted == "console":
        return ConsoleSpanExporter()
    if wanted != "otlp":
        raise ConfigError(f"OTEL_TRACES_EXPORTER {show(wanted)} must be otlp, console or none")
    if _protocol(settings, "TRACES") == "grpc":
        from rqretry.otel.export_grpc import GrpcExporter  # noqa: PLC0415 - heavy

        return GrpcExporter(settings.endpoint)
    from rqretry.otel.export_http import HttpExporter  # noqa: PLC0415

    return HttpExporter(_http(settings.endpoint, "v1/traces"))


def _meter_provider(settings: TraceSettings, resource: Resource) -> MeterProvider | None:
    """Only where metrics are configured: a trace store such as Jaeger takes none."""
    asked = variable("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
    if (variable("OTEL_METRICS_EXPORTER") or ("otlp" if asked else "none")) != "otlp":
        return None
    exporter: MetricExporter
    endpoint = None if asked else settings.endpoint
    if _protocol(settings, "METRICS") == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import (  # noqa: PLC0415
            OTLPMetricExporter as GrpcExporter,
        )

        exporter = GrpcExporter(endpoint)
    else:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import (  # noqa: PLC0415
            OTLPMetricExporter as HttpExporter,
        )

        exporter = HttpExporter(_http(endpoint, "v1/metrics"))
    return MeterProvider([PeriodicExportingMetricReader(exporter)], resource)


def _protocol(settings: TraceSettings, signal: str) -> str:
    """The protocol of the environment, else by the URL's port, else http/protobuf."""
    protocol = variable(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL") or variable(
        "OTEL_EXPORTER_OTLP_PROTOCOL"
    )
    if protocol is None:
        url = settings.endpoint or variable("OTEL_EXPORTER_OTLP_ENDPOINT") or ""
        return "grpc" if url.rstrip("/").endswith(_GRPC_PORT) else "http/protobuf"
    if protocol not in _PROTOCOLS:
        raise ConfigError(
            f"OTEL_EXPORTER_OTLP_PROTOCOL {show(protocol)} must be one of {_PROTOCOLS}"
        )
    return protocol


def _http(endpoint: str | None, path: str) -> str | None:
    """The URL of a signal; None leaves it to the environment."""
    if endpoint is None or endpoint.rstrip("/").endswith(path):
        return endpoint
    return f"{endpoint.rstrip('/')}/{path}"
