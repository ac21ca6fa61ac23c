"""Time: R27 and R28."""

from tests.meta.mutation.case import LuaLine, answers, scores, sends
from tests.meta.mutation.cases.common import case

CLOCK = "tests/lua/test_clock.py::"

CASES = (
    case("R27", "time is noted by what is written alone",
         sends("HSET", "meta", "if #args == 4 and args[1] == 'mark' then return 0 end"),
         f"{CLOCK}test_a_retry_comes_where_nothing_is_written_after_a_step_back"),
    case("R27", "what a step back has taken away is never made up for",
         answers("HMGET", "meta", "local i = at(args, 'offset') if i and answer[i] then answer[i] = answer[i] + 50 end"),
         f"{CLOCK}test_time_comes_back_to_the_wall_one_part_in_twenty",
         f"{CLOCK}test_a_clock_that_jitters_does_not_run_ahead"),
    case("R27", "nobody knows what time to expect", LuaLine("promote", "ARGV[4] = ''"),
         f"{CLOCK}test_nothing_falls_due_in_a_jump_that_comes_back"),
    case("R27", "a date is a delay",
         scores("scheduled", "math.ceil(score)", "publish_with_options"),
         f"{CLOCK}test_a_date_is_the_walls_after_the_clock_was_an_hour_ahead"),
    case("R28", "an absurd time is believed",
         answers("HMGET", "meta", "local i = at(args, 'mark') if i and (tonumber(answer[i]) or 0) > 2^48 then answer[i] = '281474976710000' end"),
         f"{CLOCK}test_a_partition_heals_from_an_absurd_number"),
)  # fmt: skip
