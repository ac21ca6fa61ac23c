"""The observer that turns the events of a process into spans and metrics."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry.context import Context, attach, detach
from opentelemetry.metrics import MeterProvider, get_meter_provider
from opentelemetry.propagate import extract, inject
from opentelemetry.trace import TracerProvider, get_tracer_provider

from rqretry.core.message import Message
from rqretry.core.waits import DueTimes
from rqretry.observability.observer import Leased, Published
from rqretry.otel import semconv
from rqretry.otel.attempt_spans import TracedAttempt
from rqretry.otel.batch_spans import TracedBatch
from rqretry.otel.dead_letter_spans import trace_dead_letter
from rqretry.otel.meters import Meters, Telemetry
from rqretry.otel.publish_spans import TracedPublication
from rqretry.otel.receive_spans import TracedSettling, trace_received
from rqretry.otel.redrive_spans import TracedRedrive
from rqretry.otel.transaction_spans import TracedDecision
from rqretry.version import __version__


class OtelObserver:
    """Spans and metrics for the providers of OpenTelemetry.

    Args:
        tracer_provider: Default the global one.
        meter_provider: Default the global one.
        one_trace: All attempts of a message in the trace of its publish, instead of a trace for
            each later attempt, linked to the publish and to the attempt before.
        start: Sets up the same in another process; None: the program does that itself.
        flush: Called when a process is about to end.
        counted: How many spans so far were "exported", "refused" and "dropped".
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        one_trace: bool = False,
        start: Callable[[], None] | None = None,
        flush: Callable[[], None] = lambda: None,
        counted: Callable[[], dict[str, int]] = dict,
    ) -> None:
        tracers = tracer_provider or get_tracer_provider()
        meters = meter_provider or get_meter_provider()
        self._telemetry = Telemetry(
            tracers.get_tracer(semconv.SCOPE, __version__),
            Meters(meters.get_meter(semconv.SCOPE, __version__)),
            one_trace,
            DueTimes(),
        )
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
        return TracedPublication(
            self._telemetry, namespace, topic, items, batch=batch, transaction=transaction
        )

    def received(
        self, namespace: str, messages: Sequence[Message[Any]], client: str, asked_ns: int
    ) -> None:
        """A simple consumer got messages."""
        trace_received(self._telemetry, namespace, messages, client, asked_ns)
        seconds = (time.time_ns() - asked_ns) / 1e9
        self._telemetry.meters.received(messages, seconds)

    def settling(
        self, namespace: str, verb: str, items: Sequence[Leased], client: str
    ) -> TracedSettling:
        """A simple consumer settles."""
        return TracedSettling(self._telemetry, namespace, verb, items, client)

    def deciding(
        self, namespace: str, transaction: str, decision: str, published: Sequence[Published]
    ) -> TracedDecision:
        """A transaction is being decided."""
        return TracedDecision(self._telemetry, namespace, transaction, decision, published)

    def dead_lettered(self, namespace: str, dead_letters: Sequence[Any], worker: str) -> None:
        """Messages died because their leases expired."""
        for dead_letter in dead_letters:
            trace_dead_letter(self._telemetry, namespace, dead_letter, worker)

    def attempting(self, namespace: str, message: Message[Any], worker: str) -> TracedAttempt:
        """An attempt begins."""
        return TracedAttempt(self._telemetry, namespace, message, worker)

    def attempting_batch(
        self, namespace: str, messages: Sequence[Message[Any]], worker: str
    ) -> TracedBatch:
        """A batch begins."""
        return TracedBatch(self._telemetry, namespace, messages, worker)

    def redriving(
        self, namespace: str, group: str, dead_letters: Sequence[Any], actor: str
    ) -> TracedRedrive:
        """Dead letters are about to be sent back."""
        return TracedRedrive(self._telemetry.tracer, namespace, group, dead_letters, actor)

    def carrier(self) -> dict[str, str]:
        """The current context, for another process."""
        headers: dict[str, str] = {}
        inject(headers)
        return headers

    @contextmanager
    def within(self, carrier: Mapping[str, str]) -> Iterator[None]:
        """In another process, make the caller's context current."""
        token = attach(extract(carrier, Context()))
        try:
            yield
        finally:
            detach(token)

    def elsewhere(self) -> Callable[[], None] | None:
        """A function that sets up the same in another process."""
        return self._start

    def spans(self) -> dict[str, int]:
        """Spans so far by result; {} where the program exports them itself."""
        return self._counted()

    def flush(self) -> None:
        """Export what is buffered; the process is about to end."""
        self._flush()
