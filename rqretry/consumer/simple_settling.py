"""What a simple consumer does with messages it has: ack, change, release. No I/O.

Each delivery counts as an attempt, however it ends without an ack; only a release does not.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, TypeVar

from rqretry.catalog.store import Place
from rqretry.core.durations import Duration, milliseconds
from rqretry.core.errors import (
    AmbiguousResult,
    InvalidReceiptHandle,
    RefusedHandle,
    RqretryError,
    refuse,
    show,
)
from rqretry.core.limits import MAX_INVISIBLE_S, MIN_INVISIBLE_S
from rqretry.core.message import Message, ReceiptHandle
from rqretry.observability import observer
from rqretry.protocol.command import Command, Each, Operation, batches
from rqretry.protocol.keys import GroupKeys
from rqretry.protocol.lease import LATER, LIMIT, OK, change_visibility, release, succeed
from rqretry.protocol.operate import scores

T = TypeVar("T")

_ACKNOWLEDGEABLE = "must be a message, its receipt_handle, or a list of them"
_ONE = "must be a message or its receipt_handle"
_OVER = {
    "STALE": "its lease has ended",
    "GONE": "the message was acknowledged already, or is dead or deleted",
}
"""Why a receipt of this group is refused, by the verdict."""

_GONE = b"GONE"

Acknowledgeable = Message[Any] | str
_UNSEEN = nullcontext(observer.Unseen())
Leases = tuple[GroupKeys, Sequence[ReceiptHandle]]
"""Leases in one place."""


class SimpleSettling(ABC):
    """What a simple consumer does with the messages that it has."""

    strict = True
    """Whether a lease must not be past its deadline, though nothing has ended it yet."""
    group: str
    worker: str
    namespace: str
    _places: list[Place]
    _max_postpones: int

    @abstractmethod
    def join(self) -> Operation[Any]:
        """Subscribe; done once, by the first call. Raises GroupNotFound, TopicNotFound."""

    @abstractmethod
    def _keys(self, handle: ReceiptHandle) -> GroupKeys:
        """The place of a lease; after `join`."""

    @abstractmethod
    def _report_deaths(self, keys: GroupKeys, ids: Sequence[str], now_ms: int) -> Operation[None]:
        """Report dead letters."""

    def ack(self, messages: Acknowledgeable | Iterable[Acknowledgeable]) -> Operation[None]:
        """Commit one message or several.

        Args:
            messages: A message, a receipt handle, or any number of either.

        Raises:
            InvalidReceiptHandle: For at least one the lease has ended, it was acknowledged
                before, or the handle is malformed or of another group: `refused` has each of
                these. The others are committed.
        """
        if not isinstance(messages, Message | str | Iterable):
            refuse("message", messages, _ACKNOWLEDGEABLE)
        items = [messages] if isinstance(messages, Message | str) else messages
        given = {_text(item, _ACKNOWLEDGEABLE): item for item in items}
        yield from self.join()
        known, refused = self._sort_out(given)
        handles = [*known.values()]
        with self._watched(observer.ACK, [given[text] for text in known], handles) as watch:
            over = yield from self._commit(handles)
            watch.done([handle.id for handle in over])
        for text, handle in known.items():
            if handle in over:
                refused[text] = RefusedHandle(text, handle.id, over[handle])
        if refused:
            raise InvalidReceiptHandle.of([refused[text] for text in given if text in refused])

    def change_invisible_duration(
        self, message: Acknowledgeable, duration: Duration
    ) -> Operation[str]:
        """Move the end of a live lease; it counts from now.

        Args:
            message: The message (its receipt handle is brought up to date) or a receipt handle.
            duration: 10 ms to 12 h; or 0: the delivery ends now, as a failed attempt with cause
                `given_back`, and the message is ready again or, after its last one, dead.

        Returns:
            The new receipt handle; the old one is stale.

        Raises:
            InvalidReceiptHandle: The lease has ended, or the handle is malformed.
            AmbiguousResult: The answer was lost, and by now the lease has ended.
        """
        duration_ms = 0 if duration == 0 else invisible_ms(duration)
        handle, keys = yield from self._lease_of(message)
        started = time.monotonic()
        verb = observer.CHANGE if duration_ms else observer.NACK
        with self._watched(verb, [message], [handle]) as watch:
            changed, doubt = yield from _repeated(
                change_visibility(keys, handle.receipt, worker=self.worker, duration_ms=duration_ms)
            )
            watch.done([handle.id] if changed.verdict in _OVER else [])
        _check_verdict(handle, changed.verdict, doubt)
        if changed.dead:
            yield from self._report_deaths(keys, changed.dead, changed.now_ms)
        if isinstance(message, Message):
            message._moved(changed.lease_no, started + duration_ms / 1000)  # noqa: SLF001 - its own lease
        return str(handle._replace(lease_no=changed.lease_no))

    def release(self, message: Acknowledgeable) -> Operation[None]:
        """Give a message back at once; this delivery does not count as an attempt.

        Args:
            message: The message, or its receipt handle, which is stale from then on.

        Raises:
            InvalidReceiptHandle, AmbiguousResult: As change_invisible_duration.
            InvalidArgument: The message was released `max_postpones` times before; nothing changed.
        """
        handle, keys = yield from self._lease_of(message)
        most = self._max_postpones
        with self._watched(observer.RELEASE, [message], [handle]) as watch:
            (verdict,), doubt = yield from _repeated(
                release(keys, [handle.receipt], worker=self.worker, max_postpones=most)
            )
            watch.done([handle.id] if verdict.decode() in _OVER else [])
        _check_verdict(handle, verdict.decode(), doubt)
        if verdict == LIMIT:
            refuse(
                "message",
                handle.id,
                f"was released {most} times (max_postpones); change_invisible_duration(message, 0)"
                " gives it back, and counts the delivery",
            )
        if isinstance(message, Message):
            message._moved(handle.lease_no, time.monotonic())  # noqa: SLF001 - its own lease

    def _lease_of(self, message: object) -> Operation[tuple[ReceiptHandle, GroupKeys]]:
        """The lease that one message or handle names, and its place."""
        text = _text(message, _ONE)
        yield from self.join()
        known, refused = self._sort_out([text])
        if refused:
            raise InvalidReceiptHandle.of([*refused.values()])
        return known[text], self._keys(known[text])

    def _sort_out(
        self, texts: Iterable[str]
    ) -> tuple[dict[str, ReceiptHandle], dict[str, RefusedHandle]]:
        """The handles of leases of this group, and those that cannot be."""
        known: dict[str, ReceiptHandle] = {}
        refused: dict[str, RefusedHandle] = {}
        places = {place[:2] for place in self._places}
        for text in texts:
            try:
                handle = ReceiptHandle.parse(text)
            except InvalidReceiptHandle as error:
                (refused[text],) = error.refused
                continue
            if handle.group == self.group and (handle.topic, handle.partition) in places:
                known[text] = handle
                continue
            reason = (
                f"it belongs to group {show(handle.group)} of topic {show(handle.topic)}, not to"
                f" this consumer of {show(self.group)}"
            )
            refused[text] = RefusedHandle(text, handle.id, reason)
        return known, refused

    def _commit(self, handles: Sequence[ReceiptHandle]) -> Operation[dict[ReceiptHandle, str]]:
        """Commit them; those whose lease was over, with the reason.

        A place that cannot be reached keeps no other from being committed; its error is raised.
        """
        over: dict[ReceiptHandle, str] = {}
        here: dict[GroupKeys, list[ReceiptHandle]] = {}
        for handle in handles:
            here.setdefault(self._keys(handle), []).append(handle)
        open_: list[Leases] = [(keys, b) for keys, all_ in here.items() for b in batches(all_)]
        error: RqretryError | None = None
        for _ in handles:  # each round commits one of a place at least
            answers = yield from self._committed(open_)
            later: list[Leases] = []
            for (keys, batch), answer in zip(open_, answers, strict=True):
                if isinstance(answer, RqretryError):
                    error = error or answer
                    continue
                judged = [*zip(batch, answer, strict=True)]
                over |= {h: _OVER[v.decode()] for h, v in judged if v not in (OK, LATER)}
                rest = [handle for handle, verdict in judged if verdict == LATER]
                later += [(keys, rest)] if rest else []
            open_ = later
            if not open_:
                break
        if error is not None:
            raise error
        return over

    def _committed(self, leases: Sequence[Leases]) -> Operation[list[Any]]:
        """The verdicts in each place, or its error.

        What is asked again because its answer was lost, and is gone by then, was committed by the
        first call, unless it is dead.
        """
        calls = [
            succeed(keys, [h.receipt for h in batch], worker=self.worker, strict=self.strict)
            for keys, batch in leases
        ]
        answers = yield Each([replace(call, once=True) for call in calls], None)
        lost = [at for at, answer in enumerate(answers) if isinstance(answer, AmbiguousResult)]
        if not lost:
            return answers  # type: ignore[no-any-return]
        again = yield Each([calls[at] for at in lost], None)
        dead = yield Each([scores(leases[at][0].dead, calls[at].ids) for at in lost], None)
        for at, verdicts, died in zip(lost, again, dead, strict=True):
            answers[at] = verdicts
            if isinstance(verdicts, list) and isinstance(died, list):
                pairs = zip(verdicts, died, strict=True)
                answers[at] = [OK if v == _GONE and died is None else v for v, died in pairs]
        return answers  # type: ignore[no-any-return]

    def _watched(
        self,
        verb: str,
        items: Sequence[Acknowledgeable],
        handles: Sequence[ReceiptHandle],
    ) -> AbstractContextManager[observer.Settling]:
        if observer.installed is None:
            return _UNSEEN
        messages = [item if isinstance(item, Message) else None for item in items]
        leases = list(zip(handles, messages, strict=True))
        return observer.settling(self.namespace, verb, leases, self.worker)


def invisible_ms(duration: Duration) -> int:
    """An invisible duration, checked."""
    return milliseconds(
        duration, name="invisible_duration", minimum=MIN_INVISIBLE_S, maximum=MAX_INVISIBLE_S
    )


def _text(item: object, rule: str) -> str:
    """The text of a receipt handle."""
    if not isinstance(item, Message | str):
        refuse("message", item, rule)
    return item.receipt_handle if isinstance(item, Message) else item


def _repeated(command: Command[T]) -> Operation[tuple[T, AmbiguousResult | None]]:
    """The answer, and why it may be about the first call's own doing."""
    try:
        return (yield replace(command, once=True)), None
    except AmbiguousResult as doubt:
        return (yield command), doubt


def _check_verdict(handle: ReceiptHandle, verdict: str, doubt: AmbiguousResult | None) -> None:
    if verdict in _OVER:
        if doubt is not None:
            raise doubt
        raise InvalidReceiptHandle.of([RefusedHandle(str(handle), handle.id, _OVER[verdict])])
