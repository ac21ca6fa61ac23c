"""Progress of long work: a bar on standard error where it is a terminal, and nothing if not.

The operator's verbs are operations: they yield their calls one by one. So the bar reads the
answers as they pass, and no verb knows about it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from rqretry.cli.output import terminal
from rqretry.client import Admin, Client
from rqretry.core.parts import parts_of
from rqretry.protocol.command import Command, Operation, Step, SyncPerformer

T = TypeVar("T")
Advance = Callable[[int], None]

_DONE: Mapping[str, Callable[[Any], int]] = {
    "purge": lambda verdicts: verdicts.count(b"OK"),
    "redrive": lambda verdicts: verdicts.count(b"OK"),
    "purge_list": lambda dropped: dropped.gone,
    "promote": lambda promoted: promoted.moved,
    "dead_letter": lambda count: count.gone,
    "catch_up": lambda page: page.given,
    "replay": lambda page: page.given,
}
"""How many messages an answer is about, of the verbs that take long."""


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Advance]:
    """A bar while the work inside lasts; `total` None: the amount is not known."""
    with _bar(what, total) as (bar, task):
        yield lambda count: bar.advance(task, count)


@contextmanager
def tasks_done() -> Iterator[Callable[[int, int], None]]:
    """A bar for the tasks of a Spark job: called with how many are done, and how many there are."""
    with _bar("tasks", None) as (bar, task):
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def _bar(what: str, total: int | None) -> Iterator[tuple[Progress, TaskID]]:
    console = terminal(err=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    bar = Progress(
        *columns,
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )
    with bar:
        yield bar, bar.add_task(what, total=total)


@contextmanager
def working(client: Client, what: str, total: int | None = None) -> Iterator[Admin]:
    """The operator's verbs, with a bar that follows their progress."""
    with performing(client, what, total) as performer:
        yield Admin(performer, parts_of(client.admin).operations)


@contextmanager
def performing(client: Client, what: str, total: int | None = None) -> Iterator[SyncPerformer]:
    """What performs operations, with a bar that follows their progress."""
    with progress(what, total) as advance:
        yield _Watched(parts_of(client).store, advance)


class _Watched:
    """Performs operations, and looks at what their calls answer."""

    def __init__(self, store: SyncPerformer, advance: Advance) -> None:
        self._store = store
        self._advance = advance

    def perform(self, operation: Operation[T]) -> T:
        """Perform an operation to its end."""
        return self._store.perform(watched(operation, self._advance))


def watched(operation: Operation[T], advance: Advance) -> Operation[T]:
    """The same operation; `advance` gets the number of messages that each call moved."""
    go_on: Callable[[], Step] = partial(next, operation)
    while True:
        try:
            step = go_on()
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            answer = yield step
        except Exception as error:  # noqa: BLE001 - the operation may handle it
            go_on = partial(operation.throw, error)
        else:
            advance(_count(step, answer))
            go_on = partial(operation.send, answer)


def _count(step: Step, result: Any) -> int:
    if isinstance(step, Command):
        return _DONE.get(step.verb, _nothing)(result)
    if isinstance(step, Sequence):
        return sum(map(_count, step, result))
    return 0


def _nothing(_answer: object) -> int:
    return 0
