"""What libraries would cost in place of code that is kept by hand (docs/decisions/0009).

    pip install prometheus_client python-json-logger
    python -m benchmarks.kept_by_hand

Prints microseconds per item, ours and the library's, each the best of several rounds.
"""

import concurrent.futures
import logging
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind

from rqretry.consumer.process_pool import ProcessSlot
from rqretry.observability.log_format import JsonFormatter
from rqretry.observability.prometheus_text import expose
from rqretry.otel.otlp_encode import SpanEncoder

_ROUNDS = 7
_SERIES, _LINES, _SPANS, _CALLS = 1000, 2000, 512, 300


def main() -> None:
    """Measure all of them."""
    _report("Prometheus text, a series", *_prometheus())
    _report("JSON log, a line", *_json_logs())
    _report("OTLP, a span", *_spans())
    _report("process, a call", *_processes())
    for module in ("prometheus_client", "pythonjsonlogger.json"):
        print(f"import {module}: {_import_ms(module):.0f} ms")


def _report(what: str, ours: float, library: float) -> None:
    print(f"{what}: ours {ours:.1f} us, library {library:.1f} us")


def _best(run: Callable[[], object], items: int) -> float:
    """Microseconds per item."""
    times: list[float] = []
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return min(times) / items * 1e6


def _prometheus() -> tuple[float, float]:
    client: Any = import_module("prometheus_client")
    registry = client.CollectorRegistry()
    gauge = client.Gauge("depth", "Depth.", ["topic", "group"], registry=registry)
    rows = [({"topic": "t", "group": f"g{n}"}, float(n)) for n in range(_SERIES)]

    def library() -> object:
        for labels, value in rows:  # the numbers are read from Redis anew for each scrape
            gauge.labels(**labels).set(value)
        return client.generate_latest(registry)

    ours = _best(lambda: expose([("depth", "gauge", "Depth.", rows)]), _SERIES)
    return ours, _best(library, _SERIES)


def _json_logs() -> tuple[float, float]:
    library: Any = import_module("pythonjsonlogger.json")
    record = logging.makeLogRecord(
        {"name": "rqretry", "levelname": "INFO", "msg": "attempt %d failed", "args": (3,)}
    )
    record.message_id, record.topic, record.group, record.attempt = "a" * 16, "t", "g", 3
    formatters = (JsonFormatter(), library.JsonFormatter("%(asctime)s %(levelname)s %(message)s"))
    ours, theirs = (
        _best(lambda f=f: [f.format(record) for _ in range(_LINES)], _LINES)  # type: ignore[misc]
        for f in formatters
    )
    return ours, theirs


def _spans() -> tuple[float, float]:
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("rqretry")
    spans: list[Any] = []
    for number in range(_SPANS):
        attributes: dict[str, Any] = {f"messaging.attribute.{n}": f"value {n}" for n in range(12)}
        attributes |= {"messaging.message.id": f"{number:016}", "rqretry.attempt": 1}
        span = tracer.start_span("process t", Context(), SpanKind.CONSUMER, attributes)
        span.end()
        spans.append(span)
    encoder = SpanEncoder()
    ours = _best(lambda: encoder.request(spans), _SPANS)
    return ours, _best(lambda: encode_spans(spans).SerializeToString(), _SPANS)


def work(number: int) -> None:
    """A handler that does nothing."""
    del number


def _processes() -> tuple[float, float]:
    slot = ProcessSlot()
    slot.call(work, (0,), {})
    ours = _best(lambda: [slot.call(work, (n,), {}) for n in range(_CALLS)], _CALLS)
    slot.close()
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, spawn) as pool:
        pool.submit(work, 0).result()
        library = _best(lambda: [pool.submit(work, n).result() for n in range(_CALLS)], _CALLS)
    return ours, library


def _import_ms(module: str) -> float:
    """How much longer a Python with this module takes to start."""

    def start(code: str) -> None:
        subprocess.run((sys.executable, "-c", code), check=True)

    bare = _best(lambda: start("import logging, json"), 1)
    return (_best(lambda: start(f"import logging, json, {module}"), 1) - bare) / 1000


if __name__ == "__main__":
    main()
