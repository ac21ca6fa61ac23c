"""Ordered groups: what they hold up, and for how long."""

from dataclasses import replace
from typing import Any

from tests.meta.mutation.case import Constant, Symbol
from tests.meta.mutation.cases.common import case

HOLDS = "tests/contract/integration/test_ordered_holds.py::"


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


CASES = (
    case("1.20", "an ordered group that names no limit gives up", Symbol("GroupRecord.new", gives_up),
         f"{HOLDS}test_an_ordered_group_that_names_no_limit_retries_for_ever[redis-7-1]"),
    case("R46", "a message group goes on beside a thread that timed out",
         Symbol("RunningAttempts._time_out", reports_at_once),
         f"{HOLDS}test_a_message_group_is_held_until_the_timed_out_thread_has_ended[redis-7-1]",
         f"{HOLDS}test_a_coroutine_that_goes_on_when_it_is_cancelled_holds_its_message_group"),
    case("R46", "a thread that goes on is left alone for ever", Constant("worker:HELD", "10**6"),
         f"{HOLDS}test_a_thread_that_goes_on_is_ended_with_its_process_and_then_the_next_one_comes"),
)  # fmt: skip
