"""What happens to a lease: lease, poll, renew, succeed, fail, release, change its visibility."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from struct import pack
from typing import Any, NamedTuple

from rqretry.core.receipt import Receipt
from rqretry.protocol.command import (
    MAX_BATCH_BYTES,
    Command,
    Each,
    Operation,
    call,
    texts,
)
from rqretry.protocol.inspect import read_body
from rqretry.protocol.keys import GroupKeys

OK, STALE, GONE, LIMIT = b"OK", b"STALE", b"GONE", b"LIMIT"
LATER = b"LATER"
"""Not done yet: it would have been too many bytes for one call."""
"""Verdicts on one message of a batch; STALE: that lease ended, GONE: the message did."""

_DUE = re.compile(rb"^(\d+ \d+)\+\d+")
NO_RECORD = b"-"
"""In place of the record of a message that was leased before and has not failed: it is no first
delivery."""
_USUAL = {(0, "", "failure")}
"""Level, delay and cause of a failure that asks for nothing and says no other cause."""

_LARGEST_HALF = 65504.0

READY, RETRY = "ready", "retry"
"""The lists of a place that leases take from: new messages, and retries."""


class Leased(NamedTuple):
    """What a lease answered.

    Times are milliseconds from now until the next message of the group is due, the next lease
    runs out and the next scheduled message of the topic is due; None for none.
    """

    status: str
    """"OK", "LIMITED" (the group has its max_inflight), "RATED" (it has a rate, and the caller no
    tokens), "PAUSED", or "NO_GROUP" (the partition has no configuration of this group yet)."""
    next_due_ms: int | None
    next_deadline_ms: int | None
    next_scheduled_ms: int | None
    left: int
    """Messages still ready."""
    ids: list[str]
    data: list[bytes]
    numbers: list[tuple[int, int]]
    """(lease_no, attempt) of each message."""
    now_ms: int = 0
    """The server's time."""
    errors: Sequence[str] = ()
    """Why each message failed the last time, or that it was redriven: the newest line of its
    failure record; "" for a first delivery, NO_RECORD for none. None at all where all are first
    deliveries."""
    rate: str = ""
    """The group's rate limit: its leases need tokens; "" for none."""

    @property
    def exhausted(self) -> bool:
        """There is nothing more to lease here before something wakes the group."""
        return self.status != "RATED" and (self.left == 0 or self.status != "OK")

    @property
    def last_errors(self) -> Sequence[str]:
        """One of `errors` for each message."""
        return self.errors or [""] * len(self.ids)


class Failure(NamedTuple):
    """A failed attempt on its way to the server."""

    receipt: Receipt
    level: int
    """0 by the ladder, k > 0 that level, -1 dead now."""
    delay_ms: int | str
    """An explicit delay, or ''."""
    random: float
    cause: str
    """One word: failure, timeout, undecodable, ..."""
    record: str
    """One line of JSON for the failure record (failures.py)."""


class Failed(NamedTuple):
    """What became of a failed attempt."""

    verdict: str
    """"OK", "STALE" or "GONE"."""
    dead: bool = False
    attempt: int = 0
    level: int = 0
    due_ms: int = 0


class Changed(NamedTuple):
    """What became of a lease whose deadline was to be changed."""

    verdict: str
    """"OK", "STALE" or "GONE"."""
    lease_no: int
    """The new one."""
    now_ms: int
    dead: tuple[str, ...]
    """The id, if the message is dead: it was given back after its last delivery."""


def lease(
    keys: GroupKeys,
    *,
    worker: str,
    want: int,
    visibility_ms: int,
    prefer: str = "ready",
    tokens: bool = False,
    expected_ms: int | None = None,
    once: bool = False,
) -> Command[Leased]:
    """Ready to inflight: take up to `want` messages for `visibility_ms`.

    `tokens`: the caller has taken as many of a group's rate limit. `expected_ms`: see
    maintain.expire; None where the caller has just looked. `once`: see Command.
    """
    touched = keys.scripts["lease"] + ((keys.deaths, keys.origins) if keys.source else ())
    expected = "" if expected_ms is None else expected_ms
    args = (keys.group, worker, want, MAX_BATCH_BYTES, visibility_ms, prefer, int(tokens), expected)
    return Command("lease", touched, args, _leased, once=once)


def with_large(keys: GroupKeys, leased: Leased) -> Operation[Leased]:
    """What was leased, with the large bodies that the script leaves out.

    Without messages that are gone by now, and those that cannot be read: their leases expire.
    """
    if all(leased.data):
        return leased
    large = [at for at, data in enumerate(leased.data) if not data]
    reads = [read_body(keys.partition, leased.ids[at]) for at in large]
    data: list[Any] = list(leased.data)
    for at, answer in zip(large, (yield Each(reads, None)), strict=True):
        data[at] = answer
    kept = [at for at, found in enumerate(data) if isinstance(found, bytes)]
    return leased._replace(
        ids=[leased.ids[at] for at in kept],
        data=[data[at] for at in kept],
        numbers=[leased.numbers[at] for at in kept],
        errors=[leased.errors[at] for at in kept] if leased.errors else leased.errors,
    )


class Polled(NamedTuple):
    """What a poll found in a place; times as in Leased."""

    now_ms: int
    next_due_ms: int | None
    next_deadline_ms: int | None
    next_scheduled_ms: int | None
    ready: int = 0
    """New messages that can be leased."""
    retry: int = 0
    """Retries that can be leased."""


def poll(places: Sequence[GroupKeys], *, once: bool = False) -> Command[list[Polled | None]]:
    """What is there to lease in these places, which need not be of one partition; reads only.

    None where the partition does not know the group. Several: not on a cluster.
    """
    touched = tuple(chain.from_iterable(keys.scripts["poll"] for keys in places))
    return Command("poll", touched, (), lambda reply: [*map(_polled, reply)], once=once)


def something_held(places: Sequence[GroupKeys]) -> Command[bool]:
    """Whether one of these places holds more than dead letters, or is unknown to its partition.

    One EXISTS, on a cluster of one place: the cheapest look at what is idle.
    """
    touched = [
        key
        for keys in places
        for key in (keys.config, keys.config, *keys.lists, keys.inflight, keys.due,
                    keys.partition.scheduled)
    ]  # fmt: skip
    wanted = 2 * len(places)
    arguments = ("EXISTS", *touched)
    return Command("exists", tuple(touched), (), lambda reply: reply != wanted, arguments=arguments)


def renew(
    keys: GroupKeys,
    receipts: Sequence[Receipt],
    *,
    visibility_ms: int,
    expected_ms: int | None = None,
) -> Command[list[bytes]]:
    """Inflight to inflight: push the deadline of leases that are still ours."""
    args = (visibility_ms, "" if expected_ms is None else expected_ms, *_flat(receipts))
    return Command("renew", keys.scripts["renew"], args, list, ids=_ids(receipts))


def succeed(
    keys: GroupKeys,
    receipts: Sequence[tuple[str, int]],
    *,
    worker: str,
    strict: bool = False,
    times: bytes = b"",
) -> Command[list[bytes]]:
    """Inflight to committed; `strict` also wants the deadline in the future (a simple ack).

    `times`: when the handlers ran (history_notes.encode_times); b"" where there were none.
    """
    ids, shared = _ids(receipts), _shared({receipt[1] for receipt in receipts})
    stride, leases = (1, ids) if shared else (2, _flat(receipts))
    touched = keys.scripts["succeed"] + ((keys.deaths,) if keys.source else ())
    args = (keys.group, worker, int(strict), stride, shared, times, *leases)
    return Command("succeed", touched, args, lambda reply: reply or [OK] * len(ids), ids=ids)


def fail(
    keys: GroupKeys,
    failures: Sequence[Failure],
    *,
    worker: str,
    tracebacks: Mapping[str, str],
    times: bytes = b"",
) -> Command[list[Failed]]:
    """Inflight to waiting_retry or dead; `tracebacks` are by fingerprint, each sent once.

    `times`: see `succeed`.
    """
    ids = tuple([failure[0][0] for failure in failures])
    stride, shared, per_message = _failures(failures, ids)
    random = failures[0].random if failures else 0.0
    lease_no = failures[0][0][1] if stride == 1 else ""
    args: list[Any] = [
        keys.group, worker, len(tracebacks), stride, random, lease_no, len(shared), times,
    ]  # fmt: skip
    for fingerprint, traceback in tracebacks.items():
        args += (fingerprint, traceback)
    args += shared
    args += per_message
    return Command(
        "fail", keys.scripts["fail"], tuple(args), lambda reply: _failed(reply, len(ids)), ids=ids
    )


def release(
    keys: GroupKeys,
    receipts: Sequence[Receipt],
    *,
    worker: str,
    delays_ms: Sequence[int | str] | None = None,
    max_postpones: int = 0,
    times: bytes = b"",
) -> Command[list[bytes]]:
    """Inflight to ready (head of its lane), or postponed by `delays_ms`; not counted.

    `times`: see `succeed`.
    """
    delays = delays_ms or [""] * len(receipts)
    args: list[Any] = [keys.group, worker, max_postpones, times]
    for receipt, delay_ms in zip(receipts, delays, strict=True):
        args += (*receipt, delay_ms)
    return Command("release", keys.scripts["release"], tuple(args), list, ids=_ids(receipts))


def change_visibility(
    keys: GroupKeys, receipt: Receipt, *, worker: str, duration_ms: int
) -> Command[Changed]:
    """Inflight to inflight with a new deadline; 0 ends the delivery: to ready or dead."""
    args = (keys.group, worker, duration_ms, *receipt)
    return call(keys.scripts, "change_visibility", args, _changed, (receipt.id,))


def encode_times(seconds: Sequence[float]) -> bytes:
    """When handlers ran, for the history: two halves of each message (docs/decisions/0116).

    Args:
        seconds: Of each message in turn, from its lease to the start of its handler, and how long
            this ran; NaN for no handler.
    """
    try:
        return pack(f"<{len(seconds)}e", *seconds)
    except OverflowError:
        return pack(f"<{len(seconds)}e", *(min(one, _LARGEST_HALF) for one in seconds))


def _failures(
    failures: Sequence[Failure], ids: tuple[str, ...]
) -> tuple[int, Sequence[str], Iterable[Any]]:
    """Arguments per message, the records that messages share, and the arguments.

    Messages that fail together often have equal records; each of these is sent once. Fields are
    read by index, since a lookup by name costs more.
    """
    usual = {(failure[1], failure[2], failure[4]) for failure in failures} <= _USUAL
    records = [failure[5] for failure in failures]
    shared = dict.fromkeys(records)
    if usual and len(shared) == 1:
        if _shared({failure[0][1] for failure in failures}):
            return 1, [*shared], ids
        return 2, [*shared], chain.from_iterable([failure[0] for failure in failures])
    if 2 * len(shared) <= len(records):
        numbers = {record: number for number, record in enumerate(shared, 1)}
        sent: list[Any] = [numbers[record] for record in records]
    else:
        shared, sent = {}, records
    if usual:
        rows = [(*failure[0], record) for failure, record in zip(failures, sent, strict=True)]
        return 3, [*shared], chain.from_iterable(rows)
    asking = [(*f[0], *f[1:5], record) for f, record in zip(failures, sent, strict=True)]
    return 7, [*shared], chain.from_iterable(asking)


def _shared(numbers: set[int]) -> int | str:
    """The lease number that all have; '' where they differ."""
    return numbers.pop() if len(numbers) == 1 else ""


def _flat(receipts: Iterable[tuple[str, int]]) -> Iterable[str | int]:
    return chain.from_iterable(receipts)


def _ids(receipts: Iterable[tuple[str, int]]) -> tuple[str, ...]:
    return tuple([receipt[0] for receipt in receipts])


def _leased(reply: list[Any]) -> Leased:
    if reply[0] == b"NO_GROUP":
        return Leased("NO_GROUP", None, None, None, 0, [], [], [])
    status, due, deadline, scheduled, left, ids, data, states, errors, now, rate, lease_no = reply
    numbers = [(lease_no, 1)] * len(ids)
    if states:
        each = states.split(b" ")
        known = {state: _numbers(state, lease_no) for state in set(each)}  # most are alike
        numbers = [known[state] for state in each]
        errors = [
            _undated(state, line) if line else b"" if state == b"-" else NO_RECORD
            for state, line in zip(each, errors or [b""] * len(each), strict=True)
        ]
    try:
        decoded = [id_.decode() for id_ in ids]
    except UnicodeDecodeError:  # no id of ours: it expires until it is dead, and harms no other
        rows = [i for i, id_ in enumerate(ids) if id_.isascii()]
        decoded = [ids[i].decode() for i in rows]
        data, numbers = [data[i] for i in rows], [numbers[i] for i in rows]
        errors = [errors[i] for i in rows] if errors else errors
    return Leased(
        status.decode(), _in_ms(due), _in_ms(deadline), _in_ms(scheduled), left, decoded, data,
        numbers, now, [line.decode(errors="replace") for line in errors], rate.decode(),
    )  # fmt: skip


def _polled(found: list[Any]) -> Polled | None:
    if not found:
        return None
    now, due, deadline, scheduled, ready, retry = found
    return Polled(now, _in_ms(due), _in_ms(deadline), _in_ms(scheduled), ready, retry)


def _in_ms(reply: int | bytes) -> int | None:
    """Milliseconds until something is due; None: nothing is."""
    return None if reply == b"" else int(reply)


def _numbers(state: bytes, usual: int) -> tuple[int, int]:
    if state == b"-":
        return usual, 1
    lease_no, attempt, _ = state.split(b":", 2)
    return int(lease_no), int(attempt)


def _undated(state: bytes, line: bytes) -> bytes:
    """An attempt record; without its due time if the message was put off, perhaps since then."""
    return line if state[-2:] == b":0" else _DUE.sub(rb"\1", line)


def _failed(reply: list[bytes], count: int) -> list[Failed]:
    verdicts = reply[:-1]
    if len(verdicts) == 1:  # of all
        return [outcome(verdicts[0])] * count
    known = {verdict: outcome(verdict) for verdict in set(verdicts)}  # most are alike
    return [known[verdict] for verdict in verdicts]


def outcome(verdict: bytes) -> Failed:
    """What fail.lua says of one message, in its answer and in the history."""
    if verdict in (STALE, GONE):
        return Failed(verdict.decode())
    attempt, *rest = verdict.split(b",")
    if rest[0] == b"D":
        return Failed("OK", dead=True, attempt=int(attempt))
    return Failed("OK", attempt=int(attempt), level=int(rest[1]), due_ms=int(float(rest[2])))


def _changed(reply: list[Any]) -> Changed:
    (answer,), now, dead = reply
    verdict, lease_no = (answer.decode(), 0) if answer in (STALE, GONE) else ("OK", int(answer))
    return Changed(verdict, lease_no, int(now), tuple(texts(dead)))


def other_list(name: str) -> str:
    """The other list of a place that leases take from."""
    return RETRY if name == READY else READY


def expected_ms(seen: tuple[int, float] | None, now: float) -> int | None:
    """What the server's time has to be at least; None before anything was seen.

    It is what was seen, at a monotonic time, and nearly as much as has passed by our clock since:
    the server makes up for a clock that has stepped back by going a twentieth slower.
    """
    return seen and seen[0] + int((now - seen[1]) * 950)
