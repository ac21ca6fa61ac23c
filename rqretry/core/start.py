"""Where a group begins."""

from datetime import datetime
from typing import Literal, TypeAlias

from rqretry.core.durations import epoch_ms
from rqretry.core.errors import refuse

LATEST, EARLIEST = "latest", "earliest"
Start: TypeAlias = Literal["latest", "earliest"] | datetime | float
"""A time is an aware datetime, or seconds since the epoch."""


def check_start(value: object, *, name: str = "start") -> str | int:
    """Where a group begins: "latest", "earliest" (what is stored), or milliseconds of a time.

    From a time on it also gets what was consumed since then and is kept.
    """
    if isinstance(value, datetime | float | int) and not isinstance(value, bool):
        return epoch_ms(name, value)
    if value not in (LATEST, EARLIEST):
        refuse(name, value, f'must be "{LATEST}", "{EARLIEST}" or a time')
    return str(value)
