"""What the protocol is written in: commands, and operations made of them. No I/O here.

A `Command` is one call of one script, or one plain Redis command, with a decoder for its reply. An
`Operation` is a generator that yields steps and receives their results; a store, asyncio or sync,
performs it. So every verb is written once and served twice.
"""

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from rqretry.protocol.signatures import ScriptKeys

T = TypeVar("T")

MAX_BATCH = 500
"""Messages per script call (docs/decisions/0007-bounds-of-a-script.md)."""
MAX_BATCH_BYTES = 1024 * 1024
"""Bytes of bodies per lease; at least one message is always leased."""

_SIDE_BY_SIDE = 100
"""Operations whose calls share round trips."""

Argument = str | bytes | int | float


def _as_it_is(result: T, confirmation: Any) -> T:
    del confirmation
    return result


@dataclass(slots=True)
class Command(Generic[T]):
    """One call to the server; not changed, and not frozen, since that takes a microsecond each.

    Attributes:
        verb: The script's name; or, where `arguments` is set, the name for errors.
        keys: The keys it touches, all in one slot.
        args: The arguments after the keys.
        decode: Turns the raw reply into the result.
        arguments: A plain Redis command to send instead of a script.
        ids: The messages it is about, for AmbiguousResult.
        confirm: A request to send right behind it on the same connection, such as WAIT
            (docs/guarantees.md R7); its reply goes to `confirmed`.
        confirmed: Puts what was confirmed into the result.
        once: Not repeated when its answer is lost: AmbiguousResult.
        ahead: Requests that the server executes right in front of it, in one transaction.
    """

    verb: str
    keys: tuple[str, ...]
    args: tuple[Argument, ...]
    decode: Callable[[Any], T]
    arguments: tuple[Argument, ...] = ()
    ids: tuple[str, ...] = ()
    confirm: tuple[Argument, ...] = ()
    confirmed: Callable[[T, Any], T] = _as_it_is
    once: bool = False
    ahead: tuple[tuple[Argument, ...], ...] = ()


def query(decode: Callable[[Any], T], *arguments: Argument) -> Command[T]:
    """A plain Redis command that changes nothing."""
    return Command("read", (), (), decode, arguments=arguments)


def call(
    keys: ScriptKeys,
    script: str,
    args: tuple[Argument, ...],
    decode: Callable[[Any], T],
    ids: tuple[str, ...] = (),
    **own: str,
) -> Command[T]:
    """One call of a script; `own`: those of its keys that are this call's alone."""
    touched = keys.completed(script, **own) if own else keys[script]
    return Command(script, touched, args, decode, ids=ids)


@dataclass(frozen=True, slots=True)
class Each:
    """Calls with an outcome each: the results, with an RqretryError in the place of what failed.

    What may succeed later is repeated for `seconds`; None: as long as any call.
    """

    commands: Sequence[Command[Any]]
    seconds: float | None = 0.0


@dataclass(frozen=True, slots=True)
class Block:
    """Wait until one of the wake keys is set, `seconds` at most; the result is the key or None."""

    keys: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for `seconds`; the result is None."""

    seconds: float


Step = Command[Any] | Sequence[Command[Any]] | Each | Block | Pause
Operation = Generator[Step, Any, T]
"""Yields steps, receives a Command's result (a list of results for a sequence), returns a T."""


class Performer(Protocol):
    """The asyncio store, as far as a facade needs it."""

    async def perform(self, operation: Operation[T]) -> T:
        """Perform an operation to its end."""


class SyncPerformer(Protocol):
    """The sync store, as far as a facade needs it."""

    def perform(self, operation: Operation[T]) -> T:
        """Perform an operation to its end."""


def batches(items: Sequence[T], most: int = MAX_BATCH) -> Iterator[Sequence[T]]:
    """Cut a sequence into what one script call may take."""
    return (items[at : at + most] for at in range(0, len(items), most))


def side_by_side(operations: Sequence[Operation[T]]) -> Operation[list[T]]:
    """Perform operations a step at a time, the calls of some of them in one round trip.

    None of them may wait for another one. A call is repeated as long as any. An error ends its own
    operation; the first one is raised when the others have ended.
    """
    results: list[T] = []
    for some in batches(operations, _SIDE_BY_SIDE):
        results += [(yield from some[0])] if len(some) == 1 else (yield from _in_step(some))
    return results


def _in_step(operations: Sequence[Operation[T]]) -> Operation[list[T]]:
    sides = [_Side(operation) for operation in operations]
    while any(side.step is not None for side in sides):
        asking = [(side, side.calls) for side in sides if side.step is not None]
        outcomes = iter((yield Each([call for _, calls in asking for call in calls], None)))
        for side, calls in asking:
            found = [next(outcomes) for _ in calls]
            if isinstance(side.step, Block | Pause):
                found = yield side.step
            side.answer(found)
    for side in sides:
        if side.error is not None:
            raise side.error
    return [side.result for side in sides]


class _Side(Generic[T]):
    """One of the operations that are performed side by side."""

    result: T

    def __init__(self, operation: Operation[T]) -> None:
        self.step: Step | None = None
        self.error: Exception | None = None
        self._operation = operation
        self._go_on(operation.send, None)

    @property
    def calls(self) -> Sequence[Command[Any]]:
        match self.step:
            case Command():
                return [self.step]
            case Each():
                return self.step.commands
            case Block() | Pause() | None:
                return []
            case _:
                return self.step

    def answer(self, found: Any) -> None:
        if isinstance(self.step, Each | Block | Pause):
            self._go_on(self._operation.send, found)
            return
        for one in found:
            if isinstance(one, Exception):
                self._go_on(self._operation.throw, one)
                return
        self._go_on(self._operation.send, found[0] if isinstance(self.step, Command) else found)

    def _go_on(self, advance: Callable[[Any], Step], outcome: Any) -> None:
        self.step = None
        try:
            self.step = advance(outcome)
        except StopIteration as end:
            self.result = end.value
        except Exception as error:  # noqa: BLE001 - raised when all have ended
            self.error = error


def text(value: Argument) -> str:
    """A reply's bytes as text; what is damaged, and no UTF-8, as escapes."""
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def texts(reply: Iterable[Argument]) -> list[str]:
    """The same of each of many."""
    return [text(value) for value in reply]


def number(value: bytes | str | float | None) -> int | None:
    """A reply's number, which may be text such as b"12" or b"1.7e3"; None for '' and None."""
    if value is None or value in (b"", ""):
        return None
    if isinstance(value, int):
        return value
    return math.ceil(float(value))


def pairs(flat: Sequence[bytes]) -> dict[str, str]:
    """A flat reply of names and values as a dict."""
    return {text(flat[i]): text(flat[i + 1]) for i in range(0, len(flat) - 1, 2)}
