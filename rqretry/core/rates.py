"""Rates as users write them: a number per second, or text such as "20/s", "100/m", "5/h"."""

import math
import re
from typing import TypeAlias

from rqretry.core.errors import refuse

Rate: TypeAlias = float | int | str

_TEXT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*/\s*([smh])\s*", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600}


def per_second(rate: object, *, name: str = "rate") -> float:
    """A rate per second.

    Raises:
        InvalidArgument: It is not a rate, or not above 0.
    """
    value = math.nan
    if isinstance(rate, str):
        found = _TEXT.fullmatch(rate)
        if found:
            value = float(found[1]) / _SECONDS[found[2]]
    elif isinstance(rate, int | float) and not isinstance(rate, bool):
        value = float(rate)
    if not math.isfinite(value) or value <= 0:
        refuse(name, rate, 'must be a number above 0 per second, or text such as "20/s" or "100/m"')
    return value


def rate_text(rate: object, *, name: str = "rate") -> str:
    """A rate as it is kept and shown, such as "20/s".

    Raises:
        InvalidArgument: It is not a rate, or not above 0.
    """
    value = per_second(rate, name=name)
    found = _TEXT.fullmatch(rate) if isinstance(rate, str) else None
    return f"{found[1]}/{found[2]}" if found else f"{value:.15g}/s"


def check_rate_limit(value: object) -> str:
    """A group's rate limit as it is kept, such as "100/s"; None or "none" is "".

    Raises:
        InvalidArgument: It is neither a rate above 0 nor "none".
    """
    return "" if value is None or value == "none" else rate_text(value, name="rate_limit")


def describe_limits(rate_limit: str | None, max_inflight: int | None) -> str:
    """The limits of a group as text, such as "200/s and 10 in flight"; "" without any."""
    most = f"{max_inflight} in flight" if max_inflight else None
    return " and ".join(filter(None, (rate_limit, most)))
