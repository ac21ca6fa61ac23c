"""Identity, the dead-letter queue, and what the sources disagree about."""

from typing import Any

from tests.meta.mutation.case import (
    Constant,
    Symbol,
    answers,
    drops,
    reads_state,
    scores,
    sends,
    setting,
    writes_state,
)
from tests.meta.mutation.cases.common import (
    DEAD_LETTERS,
    PUSH,
    SIMPLE,
    WHOLE_LADDER,
    always,
    any_receipt,
    case,
    decoded,
    group_record,
    limit,
)

RETENTION = "tests/contract/integration/test_retention.py::"
SETTLING = "tests/contract/conformance/test_settling.py::test_a_result_is_reported_again_until_the_lease_is_lost"
STORY = f"{DEAD_LETTERS}test_a_dead_letter_keeps_what_was_published_and_adds_how_it_died"
ONE_QUEUE = f"{DEAD_LETTERS}test_a_group_has_one_dead_letter_queue_for_all_its_topics"
ERRORS = (
    f"{DEAD_LETTERS}test_the_first_3_and_the_last_16_errors_are_kept_and_one_traceback_of_a_kind"
)
KEPT = f"{DEAD_LETTERS}test_time_and_other_groups_take_nothing_out_of_it"
REDRIVEN = f"{DEAD_LETTERS}test_a_redriven_message_starts_again_for_its_group_alone"
DELAYED = f"{DEAD_LETTERS}test_delayed_and_transactional_messages_retry_like_any_other"
VIEW = "tests/contract/integration/test_dead_letters_as_a_topic.py::test_its_own_retries_follow_its_own_policy_and_what_they_use_up_is_dropped"
CRASHES = "tests/contract/testing/test_faults.py::test_after_a_crash_the_message_comes_again_at_once_and_after_the_second_by_the_ladder"
TO_3_HOURS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 3h"
LEVELS = "tests/unit/core/test_delay_levels.py::"


def without_line(lines: int, gone: int) -> str:
    """Failure records of so many lines that are read without one of them."""
    return f"""
    for i = 1, #args do
      local kept, count = {{}}, 0
      for text in string.gmatch(answer[i] or '', '[^%c]+') do
        count = count + 1
        kept[#kept + 1] = count ~= {gone} and text or nil
      end
      if count == {lines} then answer[i] = table.concat(kept, string.char(10)) .. string.char(10) end
    end"""


def elsewhere(original: Any) -> Any:
    """A handler sees another topic."""

    def made(self: Any, lease: Any, *rest: Any, **named: Any) -> None:
        original(self, ("elsewhere", *lease[1:]), *rest, **named)

    return made


def first_alone(original: Any) -> Any:
    """The first of several."""

    def some(*args: Any, **named: Any) -> Any:
        found = yield from original(*args, **named)
        return found[:1]

    return some


def all_skipped(original: Any) -> Any:
    """A reset takes the dead letters, too."""

    def skip(context: Any, record: Any, *, dry_run: bool) -> Any:
        # Imported with the cases, the package would be there before it is changed.
        from rqretry.admin.promote_purge_reset import purge

        gone = yield from original(context, record, dry_run=dry_run)
        return gone + (yield from purge(context, record.name, all=True, dry_run=dry_run))

    return skip


def half(original: Any) -> Any:
    """A delay is half as long."""

    def delay(item: Any, now_ms: int) -> Any:
        delay_ms, level = original(item, now_ms)
        return (delay_ms // 2 if isinstance(delay_ms, int) else delay_ms), level

    return delay


def forgotten(original: Any) -> Any:
    """A result that could not be reported is given up."""

    def answered(self: Any, place: Any, made: Any, result: Any) -> Any:
        if isinstance(result, Exception):
            return result
        return original(self, place, made, result)

    return answered


CASES = (
    case("4.1", "a handler sees another topic", Symbol("Message.__init__", elsewhere),
         f"{DEAD_LETTERS}test_the_id_and_the_topic_are_the_same_everywhere"),
    case("4.2", "a group has dead letters in its first topic alone",
         Symbol("AdminContext.places", first_alone), ONE_QUEUE),
    case("4.3", "a dead letter has no time of birth", Symbol("core:born", always(None)), STORY),
    case("4.3", "a dead letter counts one delivery less",
         sends("HSET", "graves", "each_pair(args, function(text) local n, cause = string.match(text, '(%d+) (.*)') return n - 1 .. ' ' .. cause end)"),
         STORY),
    case("4.4", "18 errors are kept", answers("HMGET", "failures", without_line(18, 4), "fail"),
         f"{DEAD_LETTERS}test_exactly_19_errors_are_all_kept"),
    case("4.4", "the first 2 errors are kept",
         answers("HMGET", "failures", without_line(19, 3), "fail"), ERRORS),
    case("4.4", "a traceback is not kept", drops("HSET", "tracebacks", "fail"), ERRORS),
    case("4.4", "tracebacks are kept for ever", drops("HDEL", "tracebacks", "fail"),
         "tests/lua/test_fail.py::test_fail_keeps_one_traceback_of_a_kind_and_a_thousand_kinds"),
    case("4.5", "a reset takes the dead letters too",
         Symbol("admin:_skip", all_skipped), KEPT),
    case("4.5", "dead letters are kept for a minute",
         group_record(lambda record: {"dlq_retention_ms": record.dlq_retention_ms or 60000}),
         f"{RETENTION}test_by_default_a_dead_letter_is_kept_for_ever"),
    case("4.5", "a retention does nothing", group_record(lambda _: {"dlq_retention_ms": 0}),
         f"{RETENTION}test_with_a_retention_the_older_ones_are_purged_and_the_history_says_so"),
    case("4.6", "a commit of a dead letter deletes it", setting("view", "'0'", "succeed"), KEPT),
    case("4.6", "a dead letter dies again in a group that consumes it",
         setting("view", "'0'", "fail"), VIEW),
    case("4.7", "a redriven message starts at attempt 2",
         writes_state("lease, attempt + 1, expiries, postpones", "redrive"), REDRIVEN),
    case("4.7", "a redriven message loses its lineage",
         answers("HMGET", "failures", "for i = 1, #args do answer[i] = '' end", "redrive"),
         REDRIVEN),
    case("4.7", "an old receipt settles a redriven message",
         reads_state("1, attempt, expiries, postpones", "redrive"), REDRIVEN),
    case("4.8", "committed messages come a minute late",
         scores("scheduled", "score + 60000", "commit"), f"{DELAYED}[transaction]"),
    case("4.8", "a delay is half as long", Symbol("producer:_delay", half), f"{DELAYED}[delay]"),
    case("4.8", "a delay level is the next one",
         Symbol("LevelTable.delay_ms", lambda f: lambda self, level: f(self, level + 1)),
         f"{DELAYED}[delay_level]"),
    case("5.1", "the first retry comes after 1 s, as the 5.x gRPC client has it",
         Constant("core:FIRST_RETRY_LEVEL", "1"), WHOLE_LADDER),
    case("5.2", "ordered retries wait 3 s, as the limits page has it",
         Constant("core:ORDERED_POLICY", "RetryPolicy.fixed(3)"),
         f"{PUSH}test_an_ordered_group_waits_one_second_whatever_the_count"),
    case("5.3", "a result that could not be reported is forgotten",
         Symbol("Settler._answered", forgotten), f"{SETTLING}[while the lease lasts]"),
    case("5.3", "a result is reported although the lease is lost",
         Symbol("worker:_is_ours", always(value=True)), f"{SETTLING}[until it is lost]"),
    case("5.4", "a start wins over a pin", group_record(lambda _: {"pinned": ()}),
         "tests/contract/admin/test_groups.py::test_a_pinned_value_is_kept_by_a_start_that_names_another"),
    case("5.5", "what could not start fails",
         writes_state("lease, attempt + 1, expiries, postpones", "release"),
         "tests/contract/integration/test_leases.py::test_what_waits_too_long_in_the_buffer_is_given_back_uncounted"),
    case("5.6", "the least invisible duration is 10 s, as the proxy has it",
         limit("MIN_INVISIBLE_S", "10"),
         f"{SIMPLE}test_a_message_is_invisible_for_10_ms_to_12_hours"),
    case("5.7", "every receipt of a message in flight is good", any_receipt(),
         f"{SIMPLE}test_a_change_counts_from_the_call_and_keeps_the_attempt"),
    case("5.7", "a superseded receipt is answered as if it were good",
         decoded("succeed", lambda verdicts: [b"OK" for _ in verdicts]),
         f"{SIMPLE}test_a_change_counts_from_the_call_and_keeps_the_attempt"),
    case("5.8", "an exhausted message is dropped", drops("ZADD", "dead"),
         f"{SIMPLE}test_every_expiry_makes_it_ready_at_once_and_the_last_one_dead"),
    case("5.9", "a second crash comes back at once as well",
         writes_state("lease, attempt, 0, postpones", "expire"), CRASHES),
    case("5.10", "level 4 is 1 minute, as the article has it",
         Constant("core:DEFAULT_LEVELS", 'LevelTable.parse("1s 5s 10s 1m")'),
         f"{LEVELS}test_the_default_table_is_that_of_rocketmq"),
    case("5.11", "the ladder ends with 3 h",
         Constant("core:DEFAULT_LEVELS", f'LevelTable.parse("{TO_3_HOURS}")'),
         f"{LEVELS}test_the_sixteen_waits_of_the_default_table_are_17140_seconds"),
    case("5.12", "a retry stores the body once more",
         sends("HSET", "failures", "for _, bodies in ipairs(KEYS) do if string.find(bodies, ':bodies$') then each_pair(args, function(text, id) return text .. string.gsub(original('HGET', bodies, id), '[^%w ]', '') end) end end", "fail"),
         f"{PUSH}test_a_retry_stores_no_second_body"),
)  # fmt: skip
