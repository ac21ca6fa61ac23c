"""The life of a message in one consumer group, as data.

One verb per transition, spelled the same in Lua, Python, events, the command line, tests and
documentation.

To add a verb:

1. Add a row to the table, with its states before and after.
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


@dataclass(frozen=True, slots=True)
class Transition:
    """One verb: the states it accepts and the states it may lead to.

    Empty `before` means the group does not have the message yet; empty `after` means
    the group no longer has it.
    """

    verb: str
    before: tuple[State, ...]
    after: tuple[State, ...]
    when: str


_TABLE = """
publish   |                                    | ready scheduled          | a producer sends it; with a delay it is scheduled
prepare   |                                    | prepared                 | a producer sends it in a transaction
commit    | prepared                           | scheduled                | its transaction is committed: it is due at once
rollback  | prepared                           |                          | its transaction is rolled back
subscribe |                                    | ready                    | a group is created and takes over what was stored before
deliver   | scheduled                          | ready                    | its delay is over
lease     | ready                              | inflight                 | a consumer takes it
renew     | inflight                           | inflight                 | its worker moves the deadline; the receipt stays valid
change    | inflight                           | inflight                 | a simple consumer sets a new deadline
succeed   | inflight                           | committed                | the work is done
fail      | inflight                           | ready waiting_retry dead | the attempt failed; dead when no retries are left or the handler asks for it; ready if a simple consumer gave it back
release   | inflight                           | ready waiting_retry      | it is given back uncounted; it waits if postponed
expire    | inflight                           | ready waiting_retry dead | the deadline passed: ready the first time, then it waits; dead at the end
promote   | waiting_retry                      | ready                    | its wait is over, or an operator runs it now
dead_letter | ready waiting_retry              | dead                     | an operator ends it, without another attempt
redrive   | dead                               | ready waiting_retry      | an operator sends it back: attempt 1; later if a rate spreads many
replay    |                                    | ready                    | what was consumed is delivered again, as far as it is kept: attempt 1
purge     | dead waiting_retry ready inflight  |                          | an operator deletes it; one in flight only with its group or topic
recall    | scheduled                          |                          | its producer cancels it before it is due
"""  # noqa: E501 - a table


def _read(row: str) -> Transition:
    verb, before, after, when = (cell.strip() for cell in row.split("|"))
    return Transition(verb, _states(before), _states(after), when)


def _states(names: str) -> tuple[State, ...]:
    return tuple(map(State, names.split()))


TRANSITIONS = tuple(map(_read, _TABLE.strip().splitlines()))
"""What can happen to a message, one row for each verb."""
