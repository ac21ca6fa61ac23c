"""The observer that makes spans and measures of what passes the seam."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry.context import Context, attach, detach
from opentelemetry.metrics import MeterProvider, get_meter_provider
from opentelemetry.propagate import extract, inject
from opentelemetry.trace import TracerProvider, get_tracer_provider

from rqretry.core.message import Message
from rqretry.observability.observer import Leased
from rqretry.otel import semconv
from rqretry.otel.attempt_spans import TracedAttempt
from rqretry.otel.dead_letter_spans import trace_buried
from rqretry.otel.meters import Meters
from rqretry.otel.publish_spans import TracedPublication
from rqretry.otel.receive_spans import TracedSettling, trace_received
from rqretry.otel.redrive_spans import TracedRedrive
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
        counted: What became of the spans so far: "exported", "refused" or "dropped", and how many.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        one_trace: bool = False,
        start: Callable[[], None] | None = None,
        flush: Callable[[], None] | None = None,
        counted: Callable[[], dict[str, int]] | None = None,
    ) -> None:
        tracers = tracer_provider or get_tracer_provider()
        meters = meter_provider or get_meter_provider()
        self._tracer = tracers.get_tracer(semconv.SCOPE, __version__)
        self._meters = Meters(meters.get_meter(semconv.SCOPE, __version__))
        self._one_trace = one_trace
        self._start = start
        self._flush = flush
        self._counted = counted

    def publishing(
        self,
        namespace: str,
        topic: str,
        items: Sequence[Any],
        *,
        batch: bool,
        transaction: str = "",
    ) -> TracedPublication:
        """A publish begins."""
        place = (topic, namespace)
        return TracedPublication(
            self._tracer, self._meters, place, items, batch=batch, transaction=transaction
        )

    def received(
        self, namespace: str, messages: Sequence[Message[Any]], client: str, asked_ns: int
    ) -> None:
        """A simple consumer got messages."""
        trace_received(
            self._tracer, namespace, messages, client, asked_ns, one_trace=self._one_trace
        )
        self._meters.received(messages)

    def settling(
        self, namespace: str, verb: str, items: Sequence[Leased], client: str
    ) -> TracedSettling:
        """A simple consumer settles."""
        return TracedSettling(self._tracer, self._meters, namespace, verb, items, client)

    def buried(self, namespace: str, letters: Sequence[Any], worker: str) -> None:
        """Messages died because their leases ran out."""
        for letter in letters:
            trace_buried(self._tracer, namespace, letter, worker, one_trace=self._one_trace)

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

    def spans(self) -> dict[str, int]:
        """What became of the spans so far; {} where somebody else exports them."""
        return {} if self._counted is None else self._counted()

    def flush(self) -> None:
        """Export what is held; the process is about to end."""
        if self._flush is not None:
            self._flush()
