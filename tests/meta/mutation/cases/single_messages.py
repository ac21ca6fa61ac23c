"""One message at a time, callers at once, and planning: R130 to R132, R137."""

from typing import Any

from tests.meta.mutation.case import LuaLine, Symbol
from tests.meta.mutation.cases.common import always, case

CAPACITY = "tests/unit/admin/test_capacity.py::"
CALLERS = "tests/contract/integration/test_callers.py::"
SHARED = "tests/unit/producer/test_shared_call.py::"
CHANNEL = "tests/unit/transport/test_hiredis_channel.py::"


def at_any_timer(original: Any) -> Any:
    """Whoever waits gives up when the timer of an earlier wait ends."""

    def look(self: Any, loop: Any) -> None:
        self._until = 0.0
        original(self, loop)

    return look


def one_alone(_: Any) -> Any:
    """A call takes one caller, however many wait."""
    return lambda waiting, _room, _in_doubt: [waiting.popleft()]


def all_together(original: Any) -> Any:
    """Nobody's call is in doubt."""
    return lambda waiting, room, _: original(waiting, room, lambda _: None)


CASES = (
    case("R130", "a publish asks for one thing more", LuaLine("publish", "call('EXISTS', KEYS[1])"),
         "tests/lua/test_command_budget.py::"
         "test_a_bare_message_published_alone_makes_nine_commands"),
    case("R131", "a wait ends by the timer of another", Symbol("Channel._look", at_any_timer),
         f"{CHANNEL}test_each_wait_has_its_own_end_whatever_the_one_before_had"),
    case("R132", "nothing is planned for retries", Symbol("Load.retries", always((0.0, 0.0))),
         f"{CAPACITY}test_retries_and_deaths_follow_from_the_share_of_attempts_that_fail"),
    case("R137", "each caller has a call of its own", Symbol("next_call", one_alone),
         f"{CALLERS}test_what_threads_publish_while_calls_are_under_way_goes_in_one"),
    case("R137", "a topic that has room for some takes none", Symbol("_fitting", always(0)),
         f"{SHARED}test_a_topic_that_is_nearly_full_refuses_those_that_came_last"),
    case("R137", "who repeats what is in doubt takes others along", Symbol("next_call", all_together),
         f"{SHARED}test_who_repeats_what_is_in_doubt_goes_alone"),
)  # fmt: skip
