"""What a script that was cut leaves to a repeat, and to others meanwhile."""

from tests.meta.mutation.case import LuaLine, answers, drops
from tests.meta.mutation.cases.common import case

CUTS = "tests/lua/test_cuts_and_others.py::"
GOES_ON = (
    f"{CUTS}test_the_next_of_a_message_group_comes_though_the_other_group_has_finished_meanwhile"
)
REPORTED = f"{CUTS}test_whatever_is_reported_of_what_a_cut_has_ended_lets_the_next_one_go"
SPARES = f"{CUTS}test_a_removal_that_is_repeated_spares_the_new_message_of_the_id"
IDS_OF_PURGE, IDS_OF_RECALL = 10, 6
"""Which of the keys has the ids that callers chose."""

CASES = (
    case("R145", "succeed does not notice what a cut has ended before",
         answers("HDEL", "bodies", "answer = #args", "succeed"), f"{GOES_ON}[succeed]"),
    *(case("R145", f"{script} does not look for message groups that are forgotten",
           answers("HGETALL", "heads", "answer = {}", script), test)
      for script, test in (
          ("purge", f"{GOES_ON}[purge a level]"), ("purge_list", f"{GOES_ON}[purge_list]"),
          ("fail", f"{REPORTED}[fail to death]"),
          ("change_visibility", f"{REPORTED}[change to nothing]"))),
    case("R145", "a lease keeps the numbers of what has no body", drops("HDEL", "attempts", "lease"),
         f"{REPORTED}[release]"),
    case("R145", "a commit that comes late numbers what is done", drops("HDEL", "message_groups", "deliver"),
         f"{CUTS}test_a_commit_that_is_repeated_when_its_messages_are_done_leaves_nothing"),
    case("R145", "who is dead is purged as blocked",
         answers("ZMSCORE", "dead", "answer = {}", "purge_blocked"),
         f"{CUTS}test_what_is_dead_though_it_stands_in_the_order_is_not_purged_as_blocked"),
    case("R146", "purge frees an id before its message is gone",
         LuaLine("purge", f"redis.call('HDEL', KEYS[{IDS_OF_PURGE}], unpack(ARGV, 4))"),
         f"{SPARES}[purge]"),
    case("R146", "a recall frees an id before its message is gone",
         LuaLine("recall", f"redis.call('HDEL', KEYS[{IDS_OF_RECALL}], ARGV[2])"),
         f"{SPARES}[recall]"),
    case("R146", "a rollback frees no id", drops("HDEL", "ids", "rollback"), f"{SPARES}[rollback]"),
    case("R146", "a recall that was cut is done",
         answers("ZSCORE", "scheduled", "if original('HEXISTS', KEYS[3], ARGV[2]) == 0 then answer = false end", "recall"),
         f"{CUTS}test_a_recall_that_is_repeated_completes_what_was_cut"),
)  # fmt: skip
