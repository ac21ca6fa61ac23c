"""Time, R27 and R28, versions that come from it, and what comes late, R40."""

from typing import Any

from tests.meta.mutation.case import Constant, LuaLine, Symbol, answers, scores, sends
from tests.meta.mutation.cases.common import case

CLOCK = "tests/lua/test_clock.py::"


def from_one(original: Any) -> Any:
    """The first version of a topic is what it was when the server had lost nothing."""

    def first(_self: Any, _setting: str) -> Any:
        yield from ()
        return 1

    del original
    return first


PROMOTED = (
    "tests/contract/sentinel/test_failover.py::"
    "test_time_goes_on_where_the_clock_of_the_promoted_replica_is_behind"
)
HALVES = "tests/lua/test_halves.py::"

RESTORED = "tests/lua/test_restored_catalog.py::"


def counted(_original: Any) -> Any:
    """The next version is one more."""
    return lambda _old, record, _least: record


CASES = (
    case("R2", "the versions of a topic that was lost begin again",
         Symbol("CatalogStore.first_version", from_one),
         "tests/contract/integration/test_growth_order.py::"
         "test_a_topic_that_was_lost_and_came_back_with_more_partitions_is_read_again"),
    case("R27", "time is noted by what is written alone",
         sends("HSET", "meta", "if #args == 4 and args[1] == 'mark' then return 0 end"),
         f"{CLOCK}test_a_retry_comes_where_nothing_is_written_after_a_step_back"),
    case("R27", "what a step back has taken away is never made up for",
         answers("HMGET", "meta", "local i = at(args, 'offset') if i and answer[i] then answer[i] = answer[i] + 50 end"),
         f"{CLOCK}test_time_comes_back_to_the_wall_one_part_in_twenty",
         f"{CLOCK}test_a_clock_that_jitters_does_not_run_ahead"),
    case("R27", "nobody knows what time to expect", LuaLine("promote", "ARGV[4] = ''"),
         f"{CLOCK}test_nothing_falls_due_in_a_jump_that_comes_back"),
    case("R27", "who claims transactions knows no time to expect", LuaLine("claim", "ARGV[3] = ''"),
         "tests/lua/test_transaction_time.py::test_nothing_is_claimed_in_a_jump_that_comes_back"),
    case("R27", "the time of a check that is put off is not noted",
         sends("HSET", "meta", "if #args == 4 and args[1] == 'mark' then return 0 end", "defer"),
         "tests/lua/test_transaction_time.py::test_a_check_is_put_off_by_no_more_once_the_clock_is_back"),
    case("R27", "time stands still on a replica that took over and whose clock is behind",
         sends("HSET", "meta", "if #args == 4 and args[1] == 'mark' then return 0 end"),
         LuaLine("promote", "ARGV[4] = ''"), LuaLine("lease", "ARGV[8] = ''"), PROMOTED),
    case("R27", "a date is a delay",
         scores("scheduled", "math.ceil(score)", "publish_with_options"),
         f"{CLOCK}test_a_date_is_the_walls_after_the_clock_was_an_hour_ahead"),
    case("R89", "a lease is written by a time that stood still", LuaLine("lease", "ARGV[8] = ''"),
         f"{CLOCK}test_a_lease_behind_a_step_that_nobody_noted_lasts_as_long_as_any"),
    case("R89", "a renewal is written by a time that stood still", LuaLine("renew", "ARGV[2] = ''"),
         f"{CLOCK}test_a_lease_behind_a_step_that_nobody_noted_lasts_as_long_as_any"),
    case("R89", "how long a lease has waited is not made up for", Constant("worker:_BEHIND_MS", "10**9"),
         "tests/unit/worker/test_fetch.py::"
         "test_what_was_leased_by_a_time_that_stood_still_while_it_waited_is_renewed"),
    case("R40", "a half that comes late is stored", LuaLine("prepare", "ARGV[4] = redis.call('HGET', KEYS[1], 'mark') or '0'"),
         f"{HALVES}test_prepare_that_arrives_when_the_decision_is_forgotten_is_refused",
         f"{HALVES}test_prepare_is_told_the_time_where_its_caller_has_another_one"),
    case("R40", "an opening that comes late opens a transaction", LuaLine("enlist", "ARGV[10] = redis.call('HGET', KEYS[1], 'mark') or '0'"),
         "tests/lua/test_transactions.py::"
         "test_enlist_that_arrives_when_the_decision_is_forgotten_opens_nothing"),
    case("R41", "whoever asks is of this incarnation",
         LuaLine("subscribe", "ARGV[1] = redis.call('GET', 'rqretry:virtual-clock:life') or 'first'"),
         f"{RESTORED}test_a_route_that_was_read_before_the_data_went_back_is_refused",
         f"{RESTORED}test_a_client_that_read_a_route_before_the_data_went_back_reads_it_again"),
    case("R41", "versions are counted", Symbol("raised", counted),
         f"{RESTORED}test_versions_that_were_lost_are_not_given_to_other_routes_and_settings"),
    case("R28", "an absurd time is believed",
         answers("HMGET", "meta", "local i = at(args, 'mark') if i and (tonumber(answer[i]) or 0) > 2^48 then answer[i] = '281474976710000' end"),
         f"{CLOCK}test_a_partition_heals_from_an_absurd_number"),
)  # fmt: skip
