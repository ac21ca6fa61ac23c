"""What a batch handler returned, read as the result of each message of its batch.

One value for all means what it would mean for a single message. A mapping of message id to outcome
says it for each; docs/decisions/0076 has what becomes of ids that are missing, or strange.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from rqretry.core.consume_result import ConsumeResult
from rqretry.core.errors import show

Answer = ConsumeResult | BaseException
"""How the attempt of one message ended: a result, or what was raised."""
BatchOutcome = ConsumeResult | BaseException | bool | None
"""What a mapping says of one message; an exception is a failure, as if it had been raised."""
BatchReturn = ConsumeResult | bool | Mapping[str, BatchOutcome] | None
"""What a batch handler returns: one outcome for all, or a mapping of message id to outcome."""

MISSING_REASON = "the handler's mapping has no outcome for this message"
_LISTS = (list, tuple, set, frozenset)


def read_batch(
    value: Any, ids: Collection[str], read: Callable[[object], ConsumeResult]
) -> dict[str, Answer]:
    """The result of each message, by id.

    Args:
        value: What the handler returned, awaited.
        ids: Those of the batch.
        read: Reads the outcome of a single message.
    """
    if not isinstance(value, Mapping):
        return dict.fromkeys(ids, _for_all(value, read))
    strange = stranger(value, ids)
    missing = ConsumeResult.failure(f"{MISSING_REASON}{'' if strange is None else f'; {strange}'}")
    return {id_: _read(value[id_], read) if id_ in value else missing for id_ in ids}


def stranger(value: Any, ids: Collection[str]) -> str | None:
    """What is wrong with a mapping that names an id that was not in the batch; None: nothing."""
    strangers = [key for key in value if key not in ids] if isinstance(value, Mapping) else []
    if not strangers:
        return None
    return (
        f"the outcome for {show(strangers[0])} is ignored, since no message of this batch has that"
        " id: use message.id as the key"
    )


def _read(value: Any, read: Callable[[object], ConsumeResult]) -> Answer:
    return value if isinstance(value, BaseException) else read(value)


def _for_all(value: Any, read: Callable[[object], ConsumeResult]) -> Answer:
    if isinstance(value, _LISTS):  # perhaps of exceptions, which must not pass for a success
        return ConsumeResult.failure(
            f"a batch handler returned a {type(value).__name__}: return one outcome for all, or a"
            " dict of message.id to outcome"
        )
    return _read(value, read)
