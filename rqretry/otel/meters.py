"""OpenTelemetry instruments: the messaging conventions' names, labels from closed sets only."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from opentelemetry.metrics import Meter
from opentelemetry.trace import Tracer

from rqretry.core.message import Message
from rqretry.otel import semconv

_BUCKETS_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 300, 900)


class Meters:
    """What is counted and timed; topics and groups are as many as are declared, and no more."""

    def __init__(self, meter: Meter) -> None:
        buckets: dict[str, Any] = {"explicit_bucket_boundaries_advisory": _BUCKETS_S}
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Messages published."
        )
        self._sending = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "How long publishing and settling took.",
            **buckets,
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Attempts, by how they ended."
        )
        self._processing = meter.create_histogram(
            "messaging.process.duration", "s", "How long attempts took.", **buckets
        )

    def published(
        self, topic: str, count: int, seconds: float, error: BaseException | None
    ) -> None:
        """A publish or publish_many ended."""
        labels = _labels("publish", topic, error)
        self._sent.add(count, labels)
        self._sending.record(seconds, labels)

    def received(self, messages: Sequence[Message[Any]]) -> None:
        """A simple consumer got messages."""
        for message in messages:
            labels = _labels("receive", message.topic)
            self._consumed.add(1, labels | {"messaging.consumer.group.name": message.group})

    def operated(self, topic: str, verb: str, seconds: float, error: BaseException | None) -> None:
        """A simple consumer settled; `verb` is one of observer.ACK, NACK, CHANGE, RELEASE."""
        self._sending.record(seconds, _labels(verb, topic, error))

    def attempted(self, topic: str, group: str, outcome: str, seconds: float | None) -> None:
        """An attempt ended; `outcome` is one of observer.OUTCOMES.

        `seconds` is None where another message of its batch has them.
        """
        labels = _attempt(topic, group, outcome)
        self._consumed.add(1, labels)
        if seconds is not None:
            self._processing.record(seconds, labels)


class Telemetry(NamedTuple):
    """Where spans and measurements go.

    Attributes:
        tracer: Starts the spans.
        meters: Count and time.
        one_trace: All attempts of a message are in the trace of its publish.
    """

    tracer: Tracer
    meters: Meters
    one_trace: bool


@lru_cache(1024)
def _attempt(topic: str, group: str, outcome: str) -> dict[str, Any]:
    """The labels of an attempt; instruments copy what they keep."""
    own = {"messaging.consumer.group.name": group, semconv.OUTCOME: outcome}
    return _labels("process", topic) | own


def _labels(operation: str, topic: str, error: BaseException | None = None) -> dict[str, Any]:
    labels = {
        "messaging.system": semconv.SYSTEM,
        "messaging.operation.name": operation,
        "messaging.destination.name": topic,
    }
    return labels if error is None else labels | {"error.type": type(error).__qualname__}
