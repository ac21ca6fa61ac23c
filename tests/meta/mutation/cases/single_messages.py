"""One message at a time, and planning: R130 to R132."""

from typing import Any

from tests.meta.mutation.case import LuaLine, Symbol
from tests.meta.mutation.cases.common import always, case

CAPACITY = "tests/unit/admin/test_capacity.py::"
CHANNEL = "tests/unit/transport/test_hiredis_channel.py::"


def at_any_timer(original: Any) -> Any:
    """Whoever waits gives up when the timer of an earlier wait ends."""

    def look(self: Any, loop: Any) -> None:
        self._until = 0.0
        original(self, loop)

    return look


CASES = (
    case("R130", "a publish asks for one thing more", LuaLine("publish", "call('EXISTS', KEYS[1])"),
         "tests/lua/test_command_budget.py::"
         "test_a_bare_message_published_alone_makes_nine_commands"),
    case("R131", "a wait ends by the timer of another", Symbol("Channel._look", at_any_timer),
         f"{CHANNEL}test_each_wait_has_its_own_end_whatever_the_one_before_had"),
    case("R132", "nothing is planned for retries", Symbol("Load.retries", always((0.0, 0.0))),
         f"{CAPACITY}test_retries_and_deaths_follow_from_the_share_of_attempts_that_fail"),
)  # fmt: skip
