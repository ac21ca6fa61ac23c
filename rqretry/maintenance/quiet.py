"""Which of very many places hold something: asked by the hundred, then by halves."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from rqretry.core.errors import StoreUnavailable
from rqretry.protocol.command import Command, Each, Operation, batches, query

T = TypeVar("T")


def holding(
    items: Sequence[T],
    question: Callable[[Sequence[T]], Command[bool]],
    at_once: int,
    *,
    few: int = 1,
    seconds: float | None = None,
) -> Operation[list[T]]:
    """Those that hold something; also those that cannot be asked, since a look shows why.

    Args:
        items: Whatever may hold something.
        question: Asks whether one of several does.
        at_once: How many one command asks about at first; 1 where they may be on several servers.
        few: So many are not told apart.
        seconds: How long a question is repeated; None: as long as any call.

    Raises:
        StoreUnavailable: The one server does not answer.
    """
    found: list[T] = []
    asked = [*batches(items, at_once)]
    while asked:
        answers = yield Each([question(some) for some in asked], seconds)
        again: list[Sequence[T]] = []
        for some, answer in zip(asked, answers, strict=True):
            if isinstance(answer, StoreUnavailable) and at_once > 1:
                raise answer
            if answer and len(some) > few:
                again += batches(some, -(-len(some) // 2))
            elif answer:
                found += some
        asked = again
    return found


def any_key(keys_of: Callable[[T], Sequence[str]]) -> Callable[[Sequence[T]], Command[bool]]:
    """The question whether at least one key of several things is there."""
    return lambda items: query(bool, "EXISTS", *[key for item in items for key in keys_of(item)])
