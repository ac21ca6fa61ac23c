"""Which of very many partitions hold something: asked by the hundred, then by halves."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from rqretry.core.errors import StoreUnavailable
from rqretry.protocol.command import Command, Each, Operation, batches, query

T = TypeVar("T")


def holding(
    items: Sequence[T], keys_of: Callable[[T], Sequence[str]], at_once: int
) -> Operation[list[T]]:
    """Those of which a key is there; also those that cannot be asked, since a look shows why.

    Args:
        items: Whatever has keys.
        keys_of: The keys of one.
        at_once: How many one command asks about at first; 1 where they may be on several servers.

    Raises:
        StoreUnavailable: The one server does not answer.
    """
    found: list[T] = []
    asked = [*batches(items, at_once)]
    while asked:
        answers = yield Each([_exists(some, keys_of) for some in asked], None)
        again: list[Sequence[T]] = []
        for some, answer in zip(asked, answers, strict=True):
            if isinstance(answer, StoreUnavailable) and at_once > 1:
                raise answer
            if answer and len(some) > 1:
                again += batches(some, -(-len(some) // 2))
            elif answer:
                found += some
        asked = again
    return found


def _exists(items: Sequence[T], keys_of: Callable[[T], Sequence[str]]) -> Command[int]:
    return query(int, "EXISTS", *[key for item in items for key in keys_of(item)])
