"""Ordered groups: what they hold up, and for how long."""

from dataclasses import replace
from typing import Any

from tests.meta.mutation.case import Constant, Symbol, answers
from tests.meta.mutation.cases.common import ORDERED, always, case

QUEUES = "tests/lua/test_queues.py::"
UNORDERED = "tests/contract/integration/test_unordered.py::"
IN_PARTITIONS = "test_messages_without_a_message_group_are_in_the_order_of_their_partition"
STATUS = "test_status_shows_which_message_groups_are_blocked_and_for_how_long"
HOLDS = "tests/contract/integration/test_ordered_holds.py::"
SETTLE = "tests/unit/worker/test_settle.py::"


def gives_up(original: Any) -> Any:
    """An ordered group has the limit of any other."""
    return lambda *args, **named: replace(original(*args, **named), max_retries=16)


def reports_at_once(original: Any) -> Any:
    """An attempt that timed out fails, whether or not its handler has ended."""

    def time_out(self: Any, delivery: Any) -> None:
        original(self, delivery)
        if failure := self._held.pop(delivery, None):
            self._results.fail(delivery, failure)

    return time_out


def nobody(_: Any) -> Any:
    """No message group is blocked."""

    def blocked(*_: Any) -> Any:
        yield from ()
        return {}

    return blocked


def unordered(original: Any) -> Any:
    """Publishers do not say which groups order everything."""
    return lambda route: [g[:1] + b"o" if g[1:] == b"q" else g for g in original(route)]


def nothing_queued(original: Any) -> Any:
    """The first group takes the backlog as it comes."""

    def subscribe(keys: Any, route: Any) -> Any:
        made = original(keys, route)
        return replace(made, args=(*made.args[:-1], 0))

    return subscribe


def leases_first(_: Any) -> Any:
    """What is leased next goes in front of the results."""

    async def settle_and(self: Any, places: Any, calls: Any) -> Any:
        answers = await self._store.run_each(calls, self._store.patience)
        await self.flush()
        return answers

    return settle_and


def repeats(_: Any) -> Any:
    """Results that a server refuses go along with each lease."""
    return lambda self, place: place in self._dirty


CASES = (
    case("1.20", "an ordered group that names no limit gives up", Symbol("GroupRecord.new", gives_up),
         f"{HOLDS}test_an_ordered_group_that_names_no_limit_retries_for_ever[redis-7-1]"),
    case("R46", "a message group goes on beside a thread that timed out",
         Symbol("RunningAttempts._time_out", reports_at_once),
         f"{HOLDS}test_a_message_group_is_held_until_the_timed_out_thread_has_ended[redis-7-1]",
         f"{HOLDS}test_a_coroutine_that_goes_on_when_it_is_cancelled_holds_its_message_group"),
    case("R46", "a thread that goes on is left alone for ever", Constant("worker:HELD", "10**6"),
         f"{HOLDS}test_a_thread_that_goes_on_is_ended_with_its_process_and_then_the_next_one_comes"),
    case("R140", "results go by themselves", Symbol("Settler.has_results", always(False)),
         f"{ORDERED}test_results_go_with_the_lease_of_what_they_let_go[redis-7-1]"),
    case("R140", "a lease goes in front of the results", Symbol("Settler.settle_and", leases_first),
         f"{SETTLE}test_calls_go_behind_the_results_of_their_places_in_one_write"),
    case("R140", "results that failed are repeated with each lease",
         Symbol("Settler.has_results", repeats),
         f"{SETTLE}test_results_that_failed_wait_for_their_own_turn_and_no_call_repeats_them"),
    case("R61", "what has no message group waits for no other",
         Symbol("protocol:_names_of_groups", unordered),
         f"{UNORDERED}{IN_PARTITIONS}[redis-7-published-1]",
         f"{UNORDERED}test_what_is_delayed_or_in_a_transaction_is_in_order_too[redis-7-1]"),
    case("R61", "the backlog is taken in no order", Symbol("protocol:subscribe", nothing_queued),
         f"{QUEUES}test_the_first_group_takes_what_has_no_message_group_in_order[redis-7]"),
    case("R61", "the topic has no say", Symbol("core:check_unordered", always("queue")),
         f"{UNORDERED}test_where_the_topic_says_unordered_they_are_handled_in_parallel[redis-7-1]"),
    case("R62", "what blocks is counted from now",
         answers("HGET", "failures", "answer = ''", "blockers"),
         f"{QUEUES}test_who_blocks_a_message_group_for_how_long[redis-7]"),
    case("R62", "nobody looks who blocks", Symbol("admin:_blocked", nobody),
         f"{UNORDERED}test_how_long_each_message_group_is_blocked[redis-7-1]",
         f"tests/edges/cli/test_order.py::{STATUS}"),
)  # fmt: skip
