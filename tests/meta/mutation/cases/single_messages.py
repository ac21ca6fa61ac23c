"""One message at a time: R130 and R131."""

from typing import Any

from tests.meta.mutation.case import LuaLine, Symbol
from tests.meta.mutation.cases.common import case

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
)  # fmt: skip
