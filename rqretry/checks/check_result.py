"""One result of one check."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["ok", "warning", "refused"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found.

    Attributes:
        check: Its stable name, such as "eviction".
        severity: "ok", "warning", or "refused": a worker does not start.
        sentence: What was found.
        fix: What to do; "" when nothing is wrong.
    """

    check: str
    severity: Severity
    sentence: str
    fix: str = ""
