"""OpenTelemetry instruments: the messaging conventions' names, labels from closed sets only."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from opentelemetry.metrics import Meter

from rqretry.core.message import Message
from rqretry.otel import semconv

_BUCKETS_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 300, 900)


class Meters:
    """What is counted and timed; topics and groups are as many as are declared, and no more."""

    def __init__(self, meter: Meter) -> None:
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Messages published."
        )
        self._sending = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "How long publishing and settling took.",
            explicit_bucket_boundaries_advisory=_BUCKETS_S,
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Attempts, by how they ended."
        )
        self._processing = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "How long attempts took.",
            explicit_bucket_boundaries_advisory=_BUCKETS_S,
        )

    def published(
        self, destination: tuple[str, str], count: int, seconds: float, error: BaseException | None
    ) -> None:
        """A publish or publish_many ended; `destination` is topic and namespace."""
        labels: dict[str, Any] = {
            "messaging.system": semconv.SYSTEM,
            "messaging.operation.name": "publish",
            "messaging.destination.name": destination[0],
        }
        if error is not None:
            labels["error.type"] = type(error).__qualname__
        self._sent.add(count, labels)
        self._sending.record(seconds, labels)

    def received(self, messages: Sequence[Message[Any]]) -> None:
        """A simple consumer got messages."""
        for message in messages:
            labels = {
                "messaging.system": semconv.SYSTEM,
                "messaging.operation.name": "receive",
                "messaging.destination.name": message.topic,
                "messaging.consumer.group.name": message.group,
            }
            self._consumed.add(1, labels)

    def operated(self, topic: str, verb: str, seconds: float, error: BaseException | None) -> None:
        """A simple consumer settled; `verb` is one of ack, nack, change_invisible_duration."""
        labels: dict[str, Any] = {
            "messaging.system": semconv.SYSTEM,
            "messaging.operation.name": verb,
            "messaging.destination.name": topic,
        }
        if error is not None:
            labels["error.type"] = type(error).__qualname__
        self._sending.record(seconds, labels)

    def attempted(self, topic: str, group: str, outcome: str, seconds: float) -> None:
        """An attempt ended; `outcome` is one of observer.OUTCOMES."""
        labels = _attempt(topic, group, outcome)
        self._consumed.add(1, labels)
        self._processing.record(seconds, labels)


@lru_cache(1024)
def _attempt(topic: str, group: str, outcome: str) -> dict[str, Any]:
    """The labels of an attempt; instruments copy what they keep."""
    return {
        "messaging.system": semconv.SYSTEM,
        "messaging.operation.name": "process",
        "messaging.destination.name": topic,
        "messaging.consumer.group.name": group,
        semconv.OUTCOME: outcome,
    }
