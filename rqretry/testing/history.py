"""What happened to a message, read from the history that the scripts wrote."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rqretry.catalog.catalog import Catalog
from rqretry.core.durations import spell
from rqretry.core.errors import InvalidArgument, MessageNotFound, refuse, show
from rqretry.core.failure_record import read_record
from rqretry.core.lifecycle import State
from rqretry.protocol.command import Command, Operation, text
from rqretry.protocol.inspect import entries_of
from rqretry.protocol.keys import PartitionKeys
from rqretry.protocol.publish import id_of_member
from rqretry.testing.clock import VirtualClock

PURGED = "purged"
_STATES = (*(state.value for state in State), PURGED)
_SIMPLE = {
    "deliver": State.READY.value,
    "promote": State.READY.value,
    "redrive": State.READY.value,
    "subscribe": State.READY.value,
    "succeed": State.COMMITTED.value,
    "purge": PURGED,
    "dead_letter": State.DEAD.value,
}
_ANY = ("...", "…")
_ABOUT_ATTEMPT = ("lease", "renew", "change", "succeed", "fail", "release", "expire")


@dataclass(frozen=True, slots=True)
class Step:
    """One change of state.

    Attributes:
        at: Seconds since the beginning of the lab.
        state: The state that the message entered, as lifecycle.State spells it, or "purged".
        verb: What did it: publish, lease, fail, ...
        attempt: The delivery it belongs to; 0 before the first.
        worker: Who did it.
        error: Why the attempt failed; "" if it did not.
        due: When the message will be ready again, in seconds; None if it does not wait.
    """

    at: float
    state: str
    verb: str
    attempt: int
    worker: str
    error: str = ""
    due: float | None = None
    cause: str = ""

    def __str__(self) -> str:
        event = f"{self.verb}, attempt {self.attempt}" if self.verb in _ABOUT_ATTEMPT else self.verb
        if self.due is not None:
            event += f", due at {spell(self.due)}"
        return f"{spell(self.at):>16}  {self.state:<13}  {event}{self.error and f': {self.error}'}"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One delivery.

    Attributes:
        number: 1 for the first.
        at: When it was leased, in seconds since the beginning of the lab.
        outcome: "success", "postponed", "released", "running" (under a lease now), or why it
            failed: "failure", "timeout", "rejected", "mismatch", "undecodable", "expired",
            "given_back".
        error: The error's type and text, or the handler's reason; "" if it did not fail.
    """

    number: int
    at: float
    outcome: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class _Event:
    at_ms: int
    verb: str
    group: str
    worker: str
    note: str
    record: str


@dataclass(frozen=True, slots=True)
class MessageHistory:
    """Everything the history of a partition says of one message."""

    id: str
    topic: str
    groups: tuple[str, ...]
    events: tuple[_Event, ...]
    scheduled: bool
    """It waits for the delay it was published with, now."""

    def group(self, group: str | None) -> str:
        """The group that the caller means. Raises InvalidArgument if that is ambiguous."""
        if group is None and len(self.groups) <= 1:
            return self.groups[0] if self.groups else ""
        if group not in self.groups:
            rule = f"must be one of the groups of topic {show(self.topic)}"
            refuse("group", group, f"{rule}: {', '.join(self.groups)}")
        return str(group)

    def steps(self, group: str, clock: VirtualClock) -> list[Step]:
        """The path of the message in one group."""
        delayed = self.scheduled or any(event.verb == "deliver" for event in self.events)
        found: list[Step] = []
        for event in self.events:
            if event.group in ("", group):
                found += _steps(event, clock, found[-1].attempt if found else 0, delayed=delayed)
        return found


def read_history(catalog: Catalog, id_: str) -> Operation[MessageHistory]:
    """Find a message by its id in all topics. Raises MessageNotFound."""
    for topic in (yield from catalog.topics.all()):
        for number in range(topic.partitions):
            keys = catalog.partition(topic.name, number)
            entries = yield from entries_of(keys, id_, "-", pages=sys.maxsize)
            events = [event for entry in entries for event in _events(*entry, id_.encode())]
            if events:
                scheduled: bool = yield _is_scheduled(keys, id_)
                names = tuple(group.name for group in topic.groups)
                return MessageHistory(id_, topic.name, names, tuple(events), scheduled)
    raise MessageNotFound(f"no message {show(id_)} was published in this lab")


def _is_scheduled(keys: PartitionKeys, id_: str) -> Command[bool]:
    """Whether a message waits for the delay it was published with; a lab has few that do."""

    def among(reply: list[bytes]) -> bool:
        return id_ in map(id_of_member, map(text, reply))

    return Command("read", (), (), among, arguments=("ZRANGE", keys.scheduled, 0, -1))


def attempts(steps: Sequence[Step]) -> list[Attempt]:
    """The deliveries on a path."""
    found: list[Attempt] = []
    leased: Step | None = None
    for step in steps:
        if step.verb == "lease":
            leased = step
            found.append(Attempt(step.attempt, step.at, "running"))
        elif leased is not None and step.state != State.INFLIGHT:
            found[-1] = Attempt(leased.attempt, leased.at, _outcome(step), step.error)
            leased = None
    return found


def matches(pattern: Sequence[str], states: Sequence[str]) -> bool:
    """Whether states run as the pattern says; "..." is any run of states, also none."""
    reachable = {0}
    for wanted in pattern:
        if wanted in _ANY:
            reachable = set(range(min(reachable, default=len(states) + 1), len(states) + 1))
        else:
            reachable = {at + 1 for at in reachable if at < len(states) and states[at] == wanted}
    return len(states) in reachable


def parse(path: str) -> list[str]:
    """The states of a path. Raises InvalidArgument for what is not a state."""
    states = path.split()
    for state in states:
        if state not in (*_STATES, *_ANY):
            names = ", ".join(_STATES)
            refuse("path", state, f"is not a state; write {names} or ... for any of them")
    if not states:
        raise InvalidArgument("path: it is empty; name at least one state")
    return states


def failure(
    found: MessageHistory, group: str, steps: Sequence[Step], headline: str
) -> AssertionError:
    """The error that says what was wrong, and the path as it really was."""
    where = f"message {found.id} of topic {found.topic}" + (group and f", group {group}")
    lines = [f"{where}: {headline}", "its path was:", *(f"  {step}" for step in steps)]
    return AssertionError("\n".join(lines))


def _events(at_ms: int, fields: dict[str, bytes], wanted: bytes) -> Iterator[_Event]:
    verb = fields["e"].decode()
    notes = fields["d"].decode().split(" ")
    records = fields["b"].decode(errors="replace").split("\n") if verb == "fail" else []
    for index, id_ in enumerate(fields["i"].split(b" ")):
        if id_ == wanted:
            note = notes[index] if index < len(notes) else ""
            record = records[index] if index < len(records) else ""
            yield _Event(at_ms, verb, fields["g"].decode(), fields["w"].decode(), note, record)


def _steps(event: _Event, clock: VirtualClock, attempt: int, *, delayed: bool) -> Iterator[Step]:
    at, verb = clock.seconds(event.at_ms), event.verb
    number, _, fate = event.note.partition(",")
    if verb == "publish":
        state = State.SCHEDULED if delayed else State.READY
        yield Step(at, state.value, verb, 0, event.worker)
    elif verb == "lease":
        parts = event.note.split(":")
        attempt = int(parts[1]) if len(parts) > 1 else 1
        yield Step(at, State.INFLIGHT.value, verb, attempt, event.worker)
    elif verb in ("fail", "release", "expire"):
        yield from _ended(event, clock, int(number), fate)
    elif verb == "change":
        yield Step(at, State.INFLIGHT.value, verb, attempt, event.worker)
    elif verb in _SIMPLE:
        yield Step(at, _SIMPLE[verb], verb, attempt, event.worker)


def _ended(event: _Event, clock: VirtualClock, attempt: int, fate: str) -> Iterator[Step]:
    code, *rest = fate.split(",")
    states = {"R": State.READY, "W": State.WAITING_RETRY, "D": State.DEAD}
    error, cause = "", ""
    if event.verb == "fail":
        for read in read_record(f"{attempt} {event.at_ms} {event.record}"):
            error, cause = str(read), read.cause
    elif event.verb == "expire":
        error, cause = "the lease ended before the worker reported a result", "expired"
    due = clock.seconds(float(rest[1])) if code == "W" else None
    at = clock.seconds(event.at_ms)
    yield Step(at, states[code].value, event.verb, attempt, event.worker, error, due, cause)


def _outcome(step: Step) -> str:
    if step.verb == "succeed":
        return "success"
    if step.verb == "release":
        return "postponed" if step.due is not None else "released"
    return step.cause or "released"
