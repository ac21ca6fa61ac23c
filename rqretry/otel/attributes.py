"""Attributes of spans: a span's own, after those that many spans have in common.

Their names and values are in semconv.py; here is only how they are kept.
"""

from collections.abc import Mapping
from typing import Any


class SharedAttributes(dict[str, Any]):
    """Attributes that many spans have in common, and their bytes once they were encoded."""

    __slots__ = ("encoded",)

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        super().__init__(attributes)
        self.encoded: bytes | None = None


class SpanAttributes(dict[str, Any]):
    """A span's attributes; those of `shared`, if any, come first, unchanged."""

    __slots__ = ("shared",)

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        super().__init__(attributes)
        self.shared = attributes if type(attributes) is SharedAttributes else None
