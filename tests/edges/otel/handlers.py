"""Handlers with `process=True`: they are imported by their processes."""

from typing import Any

from opentelemetry import trace

from rqretry import Message


def compute(message: Message[Any]) -> None:
    """A span of its own, in another process."""
    with trace.get_tracer("shop").start_as_current_span("compute"):
        if message.body == "fail":
            raise ArithmeticError("overflow")
