"""The life of a message in one consumer group, as data.

One verb per transition, spelled the same in Lua, Python, events, the command line, tests
and documentation. The docs, the model test and the vocabulary test read this table; nothing
else may describe the life cycle.

To add a verb:

1. Add it to `Verb`, and one row to `TRANSITIONS` with its states before and after.
2. Write `lua/<verb>.lua`: header, checks first, then writes, a bounded batch.
3. Add `<verb>` to `rqretry/protocol/`: keys, arguments and the decoder of its reply.
4. Write `tests/lua/test_<verb>.py`: the whole state before, the call, the state after;
   every error and every repetition.
5. Add a rule to the model test, and the script to the crash-point test.
6. Add its cost to the table in `docs/architecture.md`.
"""

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """The state of a message in one group; it is always in exactly one of these."""

    PREPARED = "prepared"
    SCHEDULED = "scheduled"
    READY = "ready"
    INFLIGHT = "inflight"
    WAITING_RETRY = "waiting_retry"
    COMMITTED = "committed"
    DEAD = "dead"


class Verb(StrEnum):
    """What can happen to a message."""

    PUBLISH = "publish"
    PREPARE = "prepare"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    SUBSCRIBE = "subscribe"
    DELIVER = "deliver"
    LEASE = "lease"
    RENEW = "renew"
    CHANGE = "change"
    SUCCEED = "succeed"
    FAIL = "fail"
    RELEASE = "release"
    EXPIRE = "expire"
    PROMOTE = "promote"
    REDRIVE = "redrive"
    PURGE = "purge"
    RECALL = "recall"


@dataclass(frozen=True, slots=True)
class Transition:
    """One verb: the states it accepts and the states it may lead to.

    Empty `before` means the group does not have the message yet; empty `after` means
    the group no longer has it.
    """

    verb: Verb
    before: tuple[State, ...]
    after: tuple[State, ...]
    when: str


TRANSITIONS: tuple[Transition, ...] = (
    Transition(
        Verb.PUBLISH,
        (),
        (State.READY, State.SCHEDULED),
        "a producer sends it; with a delay it is scheduled",
    ),
    Transition(Verb.PREPARE, (), (State.PREPARED,), "a producer sends it in a transaction"),
    Transition(
        Verb.COMMIT,
        (State.PREPARED,),
        (State.SCHEDULED,),
        "its transaction is committed: it is due at once",
    ),
    Transition(Verb.ROLLBACK, (State.PREPARED,), (), "its transaction is rolled back"),
    Transition(
        Verb.SUBSCRIBE,
        (),
        (State.READY,),
        "a group is created and takes over what was stored before",
    ),
    Transition(Verb.DELIVER, (State.SCHEDULED,), (State.READY,), "its delay is over"),
    Transition(Verb.LEASE, (State.READY,), (State.INFLIGHT,), "a consumer takes it"),
    Transition(
        Verb.RENEW,
        (State.INFLIGHT,),
        (State.INFLIGHT,),
        "its worker moves the deadline; the receipt stays valid",
    ),
    Transition(
        Verb.CHANGE,
        (State.INFLIGHT,),
        (State.INFLIGHT, State.READY),
        "a simple consumer sets a new deadline; ready at once for 0",
    ),
    Transition(Verb.SUCCEED, (State.INFLIGHT,), (State.COMMITTED,), "the work is done"),
    Transition(
        Verb.FAIL,
        (State.INFLIGHT,),
        (State.WAITING_RETRY, State.DEAD),
        "the attempt failed; dead when no retries are left or the handler asks for it",
    ),
    Transition(
        Verb.RELEASE,
        (State.INFLIGHT,),
        (State.READY, State.WAITING_RETRY),
        "it is given back uncounted; it waits if postponed",
    ),
    Transition(
        Verb.EXPIRE,
        (State.INFLIGHT,),
        (State.READY, State.WAITING_RETRY, State.DEAD),
        "the deadline passed: ready the first time, then it waits; dead at the end",
    ),
    Transition(
        Verb.PROMOTE,
        (State.WAITING_RETRY,),
        (State.READY,),
        "its wait is over, or an operator runs it now",
    ),
    Transition(
        Verb.REDRIVE,
        (State.DEAD,),
        (State.READY, State.WAITING_RETRY),
        "an operator sends it back: attempt 1; later if a rate spreads many",
    ),
    Transition(
        Verb.PURGE,
        (State.DEAD, State.WAITING_RETRY, State.READY, State.INFLIGHT),
        (),
        "an operator deletes it; one in flight only with its group or topic",
    ),
    Transition(Verb.RECALL, (State.SCHEDULED,), (), "its producer cancels it before it is due"),
)


def table() -> str:
    """The transitions as a Markdown table, for the documentation."""
    rows = ["| verb | from | to | when |", "|---|---|---|---|"]
    rows += [
        f"| {row.verb} | {_names(row.before)} | {_names(row.after)} | {row.when} |"
        for row in TRANSITIONS
    ]
    return "\n".join(rows) + "\n"


def _names(states: tuple[State, ...]) -> str:
    return " or ".join(states) or "-"
