"""How much a topic may hold and keep, and for how long, as its record has it."""

from collections.abc import Mapping

from rqretry.core.catalog_records import HISTORY_BYTES, KEEP_BYTES, LEAST_HISTORY_BYTES, TopicRecord
from rqretry.core.durations import Duration, milliseconds
from rqretry.core.errors import refuse
from rqretry.core.limits import KEEP, MAX_BODY_BYTES, Keep, check_count

_LEAST_KEPT_S, _MOST_KEPT_S = 60, 10 * 366 * 86_400
_MOST_BYTES = 2**40


def limits_of(
    max_messages: int | Keep | None,
    max_history_bytes: int | Keep | None,
    max_history_age: Duration | Keep | None,
) -> dict[str, int]:
    """The limits of a topic that are given, as its record has them."""
    limits: dict[str, int] = {}
    if max_messages is not KEEP:
        limits["max_messages"] = check_count(max_messages or 0, name="max_messages", minimum=0)
    if max_history_bytes is not KEEP:
        given = HISTORY_BYTES if max_history_bytes is None else max_history_bytes
        limits["max_history_bytes"] = check_count(
            given,
            name="max_history_bytes",
            minimum=LEAST_HISTORY_BYTES,
            maximum=_MOST_BYTES,
        )
    if max_history_age is not KEEP:
        limits["max_history_ms"] = kept_ms(max_history_age, "max_history_age")
    return limits


def compressed_of(compress_from: int | Keep | None) -> dict[str, int]:
    """From how many bytes on bodies are compressed, if it is given; 0 for never."""
    if compress_from is KEEP:
        return {}
    least = compress_from or 0
    name = "compress_from"
    return {name: check_count(least, name=name, minimum=0, maximum=MAX_BODY_BYTES)}


def kept_of(keep: Duration | Keep | None, keep_bytes: int | Keep | None) -> dict[str, int]:
    """What is kept of consumed messages, as far as it is given."""
    limits: dict[str, int] = {}
    if keep is not KEEP:
        limits["keep_ms"] = kept_ms(keep, "keep")
    if keep_bytes is not KEEP:
        given = KEEP_BYTES if keep_bytes is None else keep_bytes
        limits["keep_bytes"] = check_count(
            given, name="keep_bytes", minimum=LEAST_HISTORY_BYTES, maximum=_MOST_BYTES
        )
    return limits


def with_both(record: TopicRecord, limits: Mapping[str, int]) -> dict[str, int]:
    """How much is kept where only a time is given; how much alone needs a time that is there."""
    size = limits.get("keep_bytes")
    if size is not None and not limits.get("keep_ms", record.keep_ms):
        refuse("keep_bytes", size, "needs a time for which it is kept: name keep, too")
    if size is None and "keep_ms" in limits:
        return {"keep_bytes": record.keep_bytes or KEEP_BYTES}
    return {}


def kept_ms(kept: Duration | None, name: str) -> int:
    """How long something is kept; 0 for ever."""
    if kept is None or kept == "none":
        return 0
    return milliseconds(kept, name=name, minimum=_LEAST_KEPT_S, maximum=_MOST_KEPT_S)
