"""A collector for each test, and the fixtures of the integration tests."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rqretry.observability import observer
from rqretry.observability.trace_settings import TraceSettings
from rqretry.otel.setup import Tracing
from tests.contract.conftest import redis_server
from tests.contract.integration.conftest import lab
from tests.edges.otel.collector import Collector

__all__ = ["lab", "redis_server"]

Traced = Callable[..., Tracing]


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A collector that is gone at the end of the test."""
    with Collector() as collector:
        yield collector


@pytest.fixture
def traced() -> Iterator[Traced]:
    """A function that has this process traced until the end of the test."""
    running: list[Tracing] = []

    def trace(endpoint: str, **options: Any) -> Tracing:
        tracing = Tracing(TraceSettings(endpoint, "test", **options))
        observer.install(tracing.observer)
        running.append(tracing)
        return tracing

    yield trace
    observer.install(None)
    for tracing in running:
        tracing.stop()
