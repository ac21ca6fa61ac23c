"""The observer that makes spans and measures of what passes the seam (rqretry.observing)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry.context import Context, attach, detach
from opentelemetry.metrics import MeterProvider, get_meter_provider
from opentelemetry.propagate import extract, inject
from opentelemetry.trace import TracerProvider, get_tracer_provider

from rqretry.edge.otel import words
from rqretry.edge.otel.consuming import TracedAttempt
from rqretry.edge.otel.meters import Meters
from rqretry.edge.otel.producing import TracedPublication
from rqretry.edge.otel.redriving import TracedRedrive
from rqretry.message import Message
from rqretry.version import __version__


class OtelObserver:
    """Spans and measures, given to the providers of OpenTelemetry.

    Args:
        tracer_provider: Default the global one.
        meter_provider: Default the global one.
        one_trace: All attempts of a message in the trace of its publish, instead of a trace for
            each later attempt, linked to the publish and to the attempt before.
        start: What sets up the same in another process; None: its own code does.
        flush: Called where a process is about to end.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        one_trace: bool = False,
        start: Callable[[], None] | None = None,
        flush: Callable[[], None] | None = None,
    ) -> None:
        tracers = tracer_provider or get_tracer_provider()
        meters = meter_provider or get_meter_provider()
        self._tracer = tracers.get_tracer(words.SCOPE, __version__)
        self._meters = Meters(meters.get_meter(words.SCOPE, __version__))
        self._one_trace = one_trace
        self._start = start
        self._flush = flush

    def publishing(
        self, namespace: str, topic: str, items: Sequence[Any], *, batch: bool
    ) -> TracedPublication:
        """A publish begins."""
        place = (topic, namespace)
        return TracedPublication(self._tracer, self._meters, place, items, batch=batch)

    def attempting(self, namespace: str, message: Message[Any], worker: str) -> TracedAttempt:
        """An attempt begins."""
        return TracedAttempt(
            self._tracer, self._meters, namespace, message, worker, one_trace=self._one_trace
        )

    def redriving(
        self, namespace: str, group: str, letters: Sequence[Any], actor: str
    ) -> TracedRedrive:
        """Dead letters are about to be sent back."""
        return TracedRedrive(self._tracer, namespace, group, letters, actor)

    def carrier(self) -> dict[str, str]:
        """The current context, for another process."""
        headers: dict[str, str] = {}
        inject(headers)
        return headers

    @contextmanager
    def within(self, carrier: Mapping[str, str]) -> Iterator[None]:
        """In another process, the context that it was called in."""
        token = attach(extract(carrier, Context()))
        try:
            yield
        finally:
            detach(token)

    def elsewhere(self) -> Callable[[], None] | None:
        """What sets up the same in another process."""
        return self._start

    def flush(self) -> None:
        """Export what is held; the process is about to end."""
        if self._flush is not None:
            self._flush()
