"""OpenTelemetry instruments: the messaging conventions' names, labels from closed sets only."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from opentelemetry.metrics import Meter, NoOpMeter
from opentelemetry.trace import Tracer

from rqretry.core.message import Message
from rqretry.core.waits import DueTimes
from rqretry.otel import semconv

_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""As the conventions advise."""
_MOST_ERRORS, _OTHER_ERRORS = 100, "_OTHER"


class Meters:
    """What is counted and timed; topics and groups are as many as are declared, and no more."""

    def __init__(self, meter: Meter) -> None:
        self._none = isinstance(meter, NoOpMeter)
        """Nothing is measured: then labels need not be made either."""
        buckets: dict[str, Any] = {"explicit_bucket_boundaries_advisory": _BUCKETS_S}
        self._errors: set[str] = set()
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
            "messaging.process.duration",
            "s",
            "How long attempts took.",
            **buckets,
        )

    def published(
        self, topic: str, count: int, seconds: float, error: BaseException | None
    ) -> None:
        """A publish or publish_many ended."""
        labels = _labels("publish", topic, error)
        self._sent.add(count, labels)
        self._sending.record(seconds, labels)

    def received(self, messages: Sequence[Message[Any]], seconds: float) -> None:
        """A simple consumer got messages, by one call."""
        for message in messages:
            labels = _labels("receive", message.topic)
            self._consumed.add(1, labels | {"messaging.consumer.group.name": message.group})
        for topic, group in {(message.topic, message.group) for message in messages}:
            labels = _labels("receive", topic) | {"messaging.consumer.group.name": group}
            self._sending.record(seconds, labels)

    def operated(self, topic: str, verb: str, seconds: float, error: BaseException | None) -> None:
        """A simple consumer settled; `verb` is one of observer.ACK, NACK, CHANGE, RELEASE."""
        self._sending.record(seconds, _labels(verb, topic, error))

    def attempted(
        self, topic: str, group: str, outcome: str, seconds: float | None, error: str = ""
    ) -> None:
        """An attempt ended; `outcome` is one of observer.OUTCOMES.

        `seconds` is None where another message of its batch has them; `error` is the type of what
        it failed with, of which the first hundred are told apart.
        """
        if self._none:
            return
        labels = _attempt(topic, group, outcome)
        self._consumed.add(1, labels)
        if error:
            if len(self._errors) < _MOST_ERRORS:
                self._errors.add(error)
            labels = labels | {"error.type": error if error in self._errors else _OTHER_ERRORS}
        if seconds is not None:
            self._processing.record(seconds, labels)


class Telemetry(NamedTuple):
    """Where spans and measurements go.

    Attributes:
        tracer: Starts the spans.
        meters: Count and time.
        one_trace: All attempts of a message are in the trace of its publish.
        due: When messages are due that failed here.
    """

    tracer: Tracer
    meters: Meters
    one_trace: bool
    due: DueTimes

    @property
    def quick(self) -> bool:
        """Whether spans find out what they can when they are exported."""
        return getattr(self.tracer, "quick", False)


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
