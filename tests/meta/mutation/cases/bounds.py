"""What is bounded: how long things are kept, how many there may be, what one call may take."""

from dataclasses import replace
from typing import Any

from tests.meta.mutation.case import Symbol, answers, drops
from tests.meta.mutation.cases.common import always, case

RETENTION = "tests/contract/integration/test_retention.py::"
GROUPS = "tests/contract/admin/test_groups.py::"
WORST = "tests/lua/test_worst_cases.py::"
LANES = "tests/contract/integration/test_lanes.py::"
SWEEP = "tests/lua/test_sweep.py::"


def none_there(original: Any) -> Any:
    """Simple consumers leave it to others to forget."""

    def made(self: Any, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        self._sweeps.next_at = float("inf")

    return made


def at_once(original: Any) -> Any:
    """The byte of a group that leaves is free before what it held is."""
    return lambda self, group: replace(original(self, group), leaving=())


def with_the_left(original: Any) -> Any:
    """A group's share of a topic stays there when it leaves."""

    def made(self: Any, group: Any) -> Any:
        return original(self, replace(group, topics=(*group.topics, *group.leaving)))

    return made


def whole_history(original: Any) -> Any:
    """Each partition may keep as much history as the topic."""
    return lambda keys, route: original(keys, replace(route, history_bytes=67108864))


def lanes_anew(_: Any) -> Any:
    """No lane is used again."""
    return lambda self: (self._lane.beside(), self._lane.beside())


CASES = (
    case("R21", "all message groups are looked through for one message",
         answers("HLEN", "heads", "answer = 0", "lease"),
         f"{WORST}test_a_message_without_a_body_among_many_message_groups"),
    case("R21", "bodies of any size end in one call",
         answers("HLEN", "big", "answer = 0", "succeed"),
         f"{WORST}test_bodies_of_2_gib_end_in_several_calls"),
    case("R21", "each list is searched as if it were alone",
         answers("LLEN", "retry", "answer = 0", "peek"),
         "tests/lua/test_every_script_is_bounded.py::"
         "test_a_message_is_searched_in_so_many_entries_of_all_lists_together"),
    case("R21", "a list of any length is searched",
         answers("LLEN", "ready", "answer = 0", "repair_places"),
         "tests/lua/test_repair.py::test_what_takes_too_long_to_look_for_is_left_until_its_list_is_shorter"),
    case("R21", "calls are cut by the number of messages alone", Symbol("Room.entries", always(0)),
         "tests/unit/producer/test_lane.py::"
         "test_a_call_carries_less_where_keys_and_ordered_groups_make_each_message_dear"),
    case("R33", "one call each half minute forgets ids", Symbol("Sweeps._wait_s", always(30.0)),
         f"{RETENTION}test_a_worker_forgets_ids_as_fast_as_they_came",
         f"{RETENTION}test_a_round_of_the_reaper_forgets_what_is_over"),
    case("R33", "simple consumers forget nothing", Symbol("SimpleOperations.__init__", none_there),
         f"{RETENTION}test_a_group_of_simple_consumers_forgets_ids_and_applies_its_retention"),
    case("R33", "a decided transaction is kept for ever", drops("ZREM", "closed", "sweep"),
         f"{SWEEP}test_sweep_forgets_a_transaction_ten_minutes_after_its_end"),
    case("R33", "what was cast stays until the next is cast",
         drops("XTRIM", "broadcast", "sweep"),
         "tests/lua/test_broadcast.py::test_sweep_forgets_what_was_cast_ten_minutes_ago_segment_by_segment"),
    case("R34", "a byte is never free again",
         Symbol("TopicRecord.freed", lambda _: lambda record, _: record),
         f"{GROUPS}test_any_number_of_groups_join_a_topic_one_after_another"),
    case("R34", "a byte is free at once", Symbol("TopicRecord.without_group", at_once),
         f"{GROUPS}test_a_byte_is_not_used_again_before_its_group_has_left_completely"),
    case("R34", "a share stays where a group was", Symbol("CatalogStore._shares", with_the_left),
         f"{GROUPS}test_the_share_of_a_topic_that_a_group_left_goes_to_the_others"),
    case("R34", "each partition keeps what the topic may",
         Symbol("protocol:subscribe", whole_history),
         "tests/contract/admin/test_limits.py::test_history_is_bounded_for_the_topic_however_many_partitions_it_has"),
    case("R34", "old history is kept", drops("XDEL", "events", "sweep"),
         f"{SWEEP}test_sweep_forgets_history_that_is_too_old_and_says_when_the_next_is"),
    case("R34", "tracebacks of any number of kinds are kept",
         drops("HDEL", "tracebacks", "fail"),
         "tests/lua/test_fail.py::test_fail_keeps_one_traceback_of_a_kind_and_a_thousand_kinds"),
    case("R34", "each thread begins a lane", Symbol("_Target.take", lanes_anew),
         f"{LANES}test_threads_that_come_and_go_leave_one_lane"),
    case("R34", "a closed client leaves its lanes for an hour",
         Symbol("Publishing.retire", always([])),
         f"{LANES}test_the_lanes_of_a_closed_client_are_forgotten_in_a_minute"),
    case("R32", "a call in doubt is forgotten with the rest when its client is closed",
         Symbol("Lane.start_over", always(None)),
         f"{LANES}test_what_is_in_doubt_is_remembered_for_an_hour_also_when_its_client_is_closed"),
)  # fmt: skip
