"""What the night shift relies on: doctor's findings, reasons, a week of numbers, ends by hand."""

from dataclasses import replace
from typing import Any

from tests.meta.mutation.case import Constant, Symbol, answers, drops
from tests.meta.mutation.cases.common import always, case

DOCTOR = "tests/edges/cli/test_doctor.py::"
WEAKNESS = f"{DOCTOR}test_each_weakness_is_found_and_reported_with_its_fix"
REASONS = (
    "tests/contract/admin/test_waiting.py::"
    "test_the_commonest_reasons_of_what_waits_with_one_message_each"
)
SERIES = "tests/lua/test_series.py::"
BY_HAND = "tests/lua/test_dead_letter.py::"


def fine(original: Any) -> Any:
    """Whatever it finds is ok."""
    return lambda *given: replace(original(*given), severity="ok", fix="")


def no_rights_asked(original: Any) -> Any:
    """Whoever asks may do everything."""

    def rights(*given: Any) -> Any:
        finding = yield from original(*given)
        return replace(finding, severity="ok", fix="")

    return rights


def first_alone(original: Any) -> Any:
    """The reasons of the first partition stand for all."""
    return lambda topic, group, parts, most: original(topic, group, parts[:1], most)


def of_any_turn(original: Any) -> Any:
    """Records of an earlier turn of the ring are read as if they were of this one."""
    return lambda blob, _turn: original(blob, int.from_bytes(blob[:3]))


CASES = (
    *(
        case("R17", f"doctor says that {what} is fine", Symbol(f"checks:{judge}", fine), WEAKNESS)
        for judge, what in (
            ("_role", "a replica"),
            ("_eviction", "a server that evicts"),
            ("_memory_limit", "a full server, or one without a limit,"),
            ("_persistence", "a server that keeps nothing"),
            ("_cluster", "a cluster node behind a URL of one server"),
            ("_version", "a server that confirms too early"),
        )
    ),
    case(
        "R17",
        "doctor believes any clock",
        Constant("checks:MAX_SKEW_MS", "10**9"),
        f"{DOCTOR}test_clocks_that_differ_are_a_warning",
    ),
    case(
        "R17",
        "doctor finds no right missing",
        Symbol("checks:_rights", no_rights_asked),
        f"{DOCTOR}test_a_right_that_is_missing_is_refused_by_name",
    ),
    case(
        "R101",
        "the reasons of one partition are counted alone",
        Symbol("admin:_merged", first_alone),
        REASONS,
    ),
    case(
        "R118",
        "each writer counts the minute again",
        answers("HMGET", "series", "answer[1] = '0'", "record_series"),
        f"{SERIES}test_a_minute_has_one_writer_and_counts_what_grew_since_the_last_one",
    ),
    case(
        "R118",
        "what was an hour or a day ago stays in its ring",
        Symbol("protocol:_unpacked", of_any_turn),
        f"{SERIES}test_ten_minutes_are_kept_for_a_week_and_nothing_for_longer",
    ),
    case(
        "R118",
        "a group that is gone keeps its numbers",
        Symbol("protocol:forget", always(())),
        "tests/edges/dashboard/test_past.py::test_a_group_that_leaves_a_topic_takes_its_numbers_along",
    ),
    case(
        "R119",
        "what is in flight is ended, too",
        answers("ZMSCORE", "inflight", "for i = 1, #args do answer[i] = false end", "dead_letter"),
        f"{BY_HAND}test_what_is_in_flight_or_over_is_left_alone_and_leaves_the_list",
    ),
    case(
        "R119",
        "the next one of the message group stays blocked",
        drops("RPUSH", "ready", "dead_letter"),
        f"{BY_HAND}test_the_next_one_of_a_message_group_goes_where_its_head_is_ended",
    ),
    case(
        "R119",
        "a broadcast group's messages seem to be ended",
        Symbol("admin:_refuse_view", always(None)),
        "tests/contract/admin/test_by_hand.py::test_who_has_no_dead_letters_is_refused",
    ),
)
