"""What goes on beside something that fails: a damaged place, a script that stops, a blocked loop."""

import asyncio
from typing import Any

from tests.meta.mutation.case import LuaLine, Symbol
from tests.meta.mutation.cases.common import always, case

PLACES = "tests/contract/integration/test_places.py::"


def stops_all(original: Any) -> Any:
    """What one place refuses stops the round of all."""

    async def made(self: Any, refused: Any) -> None:
        for _, answer in refused:
            if isinstance(answer, Exception):
                raise answer
        await original(self, refused)

    return made


def raises_for_all(original: Any) -> Any:
    """Upkeep stops at the first place that fails."""

    def made(self: Any, error: Any, put_off: Any, keys: Any) -> Any:
        if error is not None:
            raise error
        return original(self, error, put_off, keys)

    return made


def waits_for_ever(_: Any) -> Any:
    """The end of the heartbeat's thread is not awaited."""

    async def run(self: Any) -> None:
        self._thread.start()
        await asyncio.Event().wait()

    return run


def renews_all(_: Any) -> Any:
    """The heartbeat renews whatever was started."""
    return lambda _self, place, now: place.leases.sent_before(now - place.visibility_s / 3)


HARMFUL = "tests/contract/integration/test_harmful_messages.py::"
LEASES = "tests/contract/integration/test_leases.py::"
REFUSED = "tests/lua/test_refused_writes.py::"
COMMANDS = "tests/lua/test_refused_commands.py::"
UNDOES_NOTHING = "local function pcall(writes, ...) writes(...) return true end"

CASES = (
    case("R25", "what one place refuses stops leasing from all",
         Symbol("Fetcher._put_off", stops_all),
         f"{PLACES}test_a_damaged_place_stops_no_other[inflight]"),
    case("R25", "upkeep stops at the first place that fails",
         Symbol("Reaper._failed", raises_for_all),
         f"{PLACES}test_upkeep_that_fails_in_one_place_goes_on_in_the_others"),
    case("R26", "a lease that is refused is not taken back", LuaLine("lease", UNDOES_NOTHING),
         f"{REFUSED}test_a_missing_right_burns_no_attempt[redis-7-XADD-expires]",
         f"{REFUSED}test_a_key_of_another_type_burns_no_attempt[redis-7-counters-expires]"),
    case("R26", "an expiry that is refused counts", LuaLine("expire", UNDOES_NOTHING),
         f"{REFUSED}test_a_missing_right_burns_no_attempt[redis-7-ZREM-expires]"),
    case("R42", "a publish that is refused stays half written", LuaLine("publish", UNDOES_NOTHING),
         f"{COMMANDS}test_a_refused_publish_leaves_nothing_or_is_done[publish to two groups]"),
    case("R42", "and one with options", LuaLine("publish_with_options", UNDOES_NOTHING),
         f"{COMMANDS}test_a_refused_publish_leaves_nothing_or_is_done[publish in order]",
         f"{COMMANDS}test_a_refused_publish_leaves_no_gap_that_a_broadcast_group_has_missed[one]"),
    case("R42", "a death that is refused leaves its cause", LuaLine("fail", UNDOES_NOTHING),
         f"{COMMANDS}test_a_refused_command_leaves_nothing_lost_or_stuck[left-fail to death]"),
    case("R12", "a text that is not UTF-8 is sent as it is",
         Symbol("core:_encodable", lambda _: lambda text: text),
         f"{HARMFUL}test_an_exception_that_cannot_be_spelled_fails_its_own_message[redis-7-surrogate]"),
    case("R23", "a message is renewed for as long as the event loop is blocked",
         Symbol("Heartbeat._due", renews_all),
         f"{LEASES}test_a_blocked_event_loop_keeps_nothing_beyond_consume_timeout"),
    case("R23", "what waits behind a blocked event loop is kept",
         Symbol("Leases.take_late", always([])),
         f"{LEASES}test_a_blocked_event_loop_keeps_nothing_beyond_consume_timeout"),
    case("R23", "nobody notices that the heartbeat has ended",
         Symbol("Heartbeat.run", waits_for_ever),
         f"{LEASES}test_a_heartbeat_goes_on_after_an_error_and_its_end_is_the_workers[redis-7-SystemExit-True]"),
    case("R23", "a process that no longer turns is kept", Symbol("Board.silent", always([])),
         "tests/contract/production/test_replacing.py::test_a_process_that_no_longer_turns_is_replaced"),
)  # fmt: skip
