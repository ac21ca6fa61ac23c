"""What clients see of a group's policy, and what they ask for, in our terms."""

from typing import Any

from rqretry.core import retry_policy
from rqretry.core.catalog_records import GroupRecord
from rqretry.core.delay_levels import DEFAULT_LEVELS, LevelTable
from rqretry.core.errors import show
from rqretry.core.limits import MAX_INVISIBLE_S, MIN_INVISIBLE_S, UNLIMITED, check_tags
from rqretry.core.route import EVERY_TAG
from rqretry.gateway.codes import Code, Refused, checked
from rqretry.gateway.protocol import v2

LONG_POLLING_S = 20.0
"""As RocketMQ's proxy: a consumer that stops waits for its poll, and a pod has 30 s to stop."""
_MOST_ATTEMPTS = 2**31 - 1


def attempts_of(record: GroupRecord) -> int:
    """How often a client may try a message before it forwards it as dead.

    Clients retry an ordered message inside their own process, where nobody sees or counts it; so
    they are allowed one attempt, and what they forward is a failed attempt (decision 0087).
    """
    if record.ordered:
        return 1
    return _MOST_ATTEMPTS if record.max_retries == UNLIMITED else record.max_retries + 1


def delays_of(record: GroupRecord, levels: LevelTable | None) -> tuple[int, ...]:
    """The waits of a group's policy in milliseconds; the last one repeats."""
    return retry_policy.compiled(record.policy, (levels or DEFAULT_LEVELS).ms).delays_ms


def tags_of(expression: Any) -> str:
    """The tags of a filter expression, as a subscription takes them."""
    if expression.type == v2.FilterType.SQL:
        raise Refused(
            Code.ILLEGAL_FILTER_EXPRESSION,
            "the broker does not support consumer to filter message by SQL92: filter by tag",
        )
    if expression.type not in (v2.FilterType.FILTER_TYPE_UNSPECIFIED, v2.FilterType.TAG):
        raise Refused(
            Code.ILLEGAL_FILTER_EXPRESSION,
            f"filter type {expression.type} is not supported: filter by tag",
        )
    text = expression.expression.strip() or EVERY_TAG
    return checked(Code.ILLEGAL_FILTER_EXPRESSION, check_tags, text)


def check_invisible(seconds: float) -> None:
    """Raises Refused for an invisible duration outside its limits."""
    if not MIN_INVISIBLE_S <= seconds <= MAX_INVISIBLE_S:
        raise Refused(
            Code.ILLEGAL_INVISIBLE_TIME,
            f"invisible_duration {show(seconds)} s must be from {MIN_INVISIBLE_S:g} s to"
            f" {MAX_INVISIBLE_S:g} s",
        )
