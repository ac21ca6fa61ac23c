"""Push consumers."""

import time
from typing import Any

from tests.meta.mutation.case import (
    Constant,
    Symbol,
    drops,
    reads_state,
    scores,
    sends,
    setting,
    writes_state,
)
from tests.meta.mutation.cases.common import (
    KEPT,
    LADDER,
    ORDERED,
    PUSH,
    SIMPLE,
    WHOLE_LADDER,
    always,
    case,
    command,
    failing,
)

OUTCOMES = "tests/contract/integration/test_outcomes.py::"
LEASES = "tests/contract/integration/test_leases.py::"
BROADCAST = "tests/contract/integration/test_broadcast.py::"
TIMEOUT = f"{PUSH}test_consume_timeout_counts_from_the_lease_and_is_15_minutes"
DEADLINE = f"{PUSH}test_a_delivery_has_a_deadline_that_a_renewal_moves"
BODIES = f"{PUSH}test_the_body_is_there_until_the_last_group_has_finished"
NONE = f"{PUSH}test_none_is_a_failure_only_where_a_result_is_promised_or_by_option"
LEVELS = f"{PUSH}test_the_automatic_level_depends_on_the_count_alone"
ONE_SECOND = f"{PUSH}test_an_ordered_group_waits_one_second_whatever_the_count"
CRASHES = "tests/contract/testing/test_faults.py::test_after_a_crash_the_message_comes_again_at_once_and_after_the_second_by_the_ladder"
IN_ORDER = f"{ORDERED}test_message_groups_are_handled_in_order_and_one_message_at_a_time"
EXPIRE = ("expire",)


def late(original: Any) -> Any:
    """The time of an attempt counts from its start."""

    def start(self: Any, delivery: Any, started: float) -> Any:
        delivery.leased_at = time.monotonic()
        return original(self, delivery, started)

    return start


def false_succeeds(original: Any) -> Any:
    """False is taken for True."""
    return lambda value, **named: original(True if value is False else value, **named)


def succeeds(original: Any) -> Any:
    """Whatever is raised is a success."""

    def raised(self: Any, *args: Any) -> Any:
        original(self, *args)
        return self._classify(True)

    return raised


def without_level(original: Any) -> Any:
    """A level of -1 is not the same as dead_letter."""

    def retry(cls: Any, after: Any = None, level: Any = None, reason: Any = None) -> Any:
        return original(cls, after, 0 if level == -1 else level, reason)

    return retry


def compiled(kind: str, steps: slice) -> Any:
    """Some of the waits of a kind of policy."""

    def make(original: Any) -> Any:
        def compile_(self: Any, levels: Any) -> Any:
            made = original(self, levels)
            if self.form != kind:
                return made
            return type(made)(made.delays_ms[steps], made.jitter)

        return compile_

    return Symbol("core:compiled", make)


def without_cap(_: Any) -> Any:
    """Waits that grow for ever."""
    return lambda self: tuple(round(self.steps_ms[0] * self.multiplier**step) for step in range(20))


def level(change: dict[int, int]) -> Symbol:
    """Failures of other levels."""
    return failing(lambda failure: failure._replace(level=change.get(failure.level, failure.level)))


CASES = (
    case("1.1", "a lease is an hour longer than asked for",
         scores("inflight", "score + 3600000", "lease"), DEADLINE),
    case("1.1", "a renewal moves no deadline", drops("ZADD", "inflight", "renew"), DEADLINE),
    case("1.1", "nothing is renewed", Symbol("Heartbeat._renew_all", always(None)), DEADLINE),
    case("1.2", "the body goes with the first group that has finished",
         sends("HMGET", "pending", "return {}", "succeed"), BODIES),
    case("1.2", "the body stays when the last group has finished",
         drops("HDEL", "bodies"), BODIES),
    case("1.3", "False is a success", Symbol("core:classify_return", false_succeeds),
         f"{OUTCOMES}test_a_failure_is_retried_and_then_dead"),
    case("1.3", "an exception is a success", Symbol("Execution._raised", succeeds),
         f"{OUTCOMES}test_whatever_a_handler_raises_is_a_failure_and_the_worker_goes_on[ValueError-async]"),
    case("1.3", "what a task returns is read as a handler's answer",
         Symbol("ConsumerSpec.is_task", always(value=False)),
         "tests/contract/surface/test_tasks.py::test_what_a_task_returns_means_nothing"),
    case("1.4", "postponing has no bound",
         writes_state("lease, attempt, expiries, 0", "release"),
         f"{LADDER}test_a_message_postponed_too_often_fails"),
    case("1.4", "a postponement counts as an attempt",
         writes_state("lease, attempt + 1, expiries, postpones", "release"),
         f"{LADDER}test_a_postponed_message_keeps_its_attempt"),
    case("1.5", "one delivery too many before the DLQ",
         setting("max_retries", "(tonumber(value) or 16) + 1"), WHOLE_LADDER),
    case("1.5", "one delivery too few before the DLQ",
         setting("max_retries", "(tonumber(value) or 16) - 1"), WHOLE_LADDER),
    case("1.6", "a handler runs for ever", Symbol("RunningAttempts._time_out", always(None)),
         f"{LEASES}test_consume_timeout_cancels_an_async_handler_and_counts_a_failure"),
    case("1.6", "consume_timeout counts from the start and not from the lease",
         Symbol("Execution.start", late), TIMEOUT),
    case("1.6", "a time-out is not a cause of its own",
         failing(lambda f: f._replace(cause=f.cause.replace("timeout", "failure"))), TIMEOUT),
    case("1.6", "consume_timeout is 10 minutes by default",
         Constant("consumer:CONSUME_TIMEOUT_S", "600"), TIMEOUT),
    case("1.7", "what does not start is kept", *KEPT,
         f"{LEASES}test_what_waits_too_long_in_the_buffer_is_given_back_uncounted"),
    case("1.8", "every expiry is ready at once",
         reads_state("lease, attempt, 0, postpones", *EXPIRE), CRASHES),
    case("1.8", "the first expiry waits by the ladder",
         reads_state("lease, attempt, expiries + 1, postpones", *EXPIRE), CRASHES),
    case("1.8", "an expiry counts no attempt",
         writes_state("lease, attempt - 1, expiries, postpones", *EXPIRE), CRASHES),
    case("1.9", "what a stopping worker gives up counts as an attempt",
         writes_state("lease, attempt + 1, expiries, postpones", "release"),
         "tests/contract/integration/test_stopping.py::test_what_still_runs_after_the_grace_is_given_back_uncounted"),
    case("1.9", "a worker that stops keeps what has not started", *KEPT,
         "tests/contract/integration/test_stopping.py::test_messages_that_did_not_start_are_given_back_uncounted_and_running_ones_finish"),
    case("1.10", "level -1 is retried", level({-1: 0}), f"{LADDER}test_a_dead_letter_says_why"),
    case("1.10", "level -1 is not the same as dead_letter",
         Symbol("ConsumeResult.retry", without_level),
         f"{OUTCOMES}test_a_dead_letter_result_needs_no_retry"),
    case("1.11", "None is a success where a result is promised",
         Symbol("core:none_means_success", always(value=True)), NONE),
    case("1.11", "None is a failure where nothing is promised",
         Symbol("core:none_means_success", always(value=False)), NONE),
    case("1.11", "none_is has no effect",
         Symbol("consumer:_none_is", lambda read: lambda _, *rest: read(None, *rest)), NONE),
    case("1.12", "the automatic level is 2 + reconsume_times",
         Constant("core:FIRST_RETRY_LEVEL", "2"), WHOLE_LADDER),
    case("1.12", "the ladder begins with its second step",
         setting("delays", "string.gsub(value, '^%d+ ', '', 1)"), WHOLE_LADDER),
    case("1.12", "the ladder ends before 2 h", compiled("rocketmq", slice(0, -1)),
         "tests/contract/integration/test_ladder.py::test_more_retries_than_the_ladder_is_long_wait_its_last_step"),
    case("1.13", "the interval starts before the failure is reported",
         scores("delay", "score - 5000", "fail"),
         f"{PUSH}test_the_interval_starts_when_the_failure_is_reported"),
    case("1.14", "a chosen level is the one after it",
         level({number: number + 1 for number in range(1, 18)}), LEVELS),
    case("1.14", "level 1 is automatic", level({1: 0}), LEVELS),
    case("1.14", "a chosen level is forgotten",
         level(dict.fromkeys(range(1, 19), 0)), LEVELS),
    case("1.15", "an exponential policy has no cap",
         Symbol("core:_exponential_ms", without_cap),
         f"{PUSH}test_each_policy_waits_exactly_its_steps"),
    case("1.15", "a custom ladder has one step", compiled("ladder", slice(1)),
         f"{PUSH}test_each_policy_waits_exactly_its_steps"),
    case("1.15", "jitter is twice as large", setting("jitter", "2 * value"),
         f"{PUSH}test_jitter_is_a_part_of_the_wait_and_not_all_of_it"),
    case("1.15", "there is no jitter", setting("jitter", "0"),
         f"{PUSH}test_jitter_is_a_part_of_the_wait_and_not_all_of_it"),
    case("1.16", "retries wait for new messages",
         command("lease", lambda _: {"prefer": "ready"}),
         "tests/contract/integration/test_timing.py::test_a_busy_group_does_not_starve_due_retries_nor_the_other_way_round"),
    case("1.16", "new messages wait for retries",
         command("lease", lambda _: {"prefer": "retry"}),
         f"{SIMPLE}test_due_retries_and_new_messages_share_what_is_received"),
    case("1.17", "two of a message group are out at once",
         sends("HMGET", "heads", "return {}"), IN_ORDER),
    case("1.17", "a message group goes backwards",
         sends("HSET", "message_groups",
               "each_pair(args, function(kept) return backwards(string.sub(kept, 1, 16)) .. string.sub(kept, 17) end)"),
         sends("ZADD", "line",
               "for i = 2, #args, 2 do local g, n, id = string.match(args[i], '^(%Z*)%z(' .. string.rep('%d', 16) .. ')(.*)$') args[i] = g .. string.char(0) .. backwards(n) .. id end"),
         IN_ORDER),
    case("1.18", "an ordered group waits as its handler says",
         setting("ordered", "false", "fail"), ONE_SECOND),
    case("1.18", "an ordered interval may be 9 ms",
         Constant("core:ORDERED_INTERVALS_MS", "(9, 30_000)"),
         f"{ORDERED}test_an_ordered_consumer_with_another_policy_is_refused"),
    case("1.18", "an ordered group may have a ladder",
         Symbol("core:check_ordered", always(None)),
         f"{ORDERED}test_an_ordered_consumer_with_another_policy_is_refused"),
    case("1.18", "a failure blocks every message group",
         Symbol("core:check_message_group", always("x")), ONE_SECOND),
    case("1.19", "a dead letter blocks its message group",
         drops("RPUSH", "ready", "fail"), ONE_SECOND),
    case("1.20", "unlimited is 7 retries",
         setting("max_retries", "value == '-1' and '7' or value"),
         f"{PUSH}test_a_failure_of_an_ordered_group_blocks_no_other_group"),
    case("1.21", "the server does not count",
         writes_state("lease, attempt - 1, expiries, postpones", "fail"),
         f"{PUSH}test_an_ordered_count_survives_its_workers"),
    case("1.22", "a message is left out",
         sends("XADD", "broadcast", "local n = at(args, 'n') if #args > n + 1 then table.remove(args) table.remove(args) end"),
         f"{BROADCAST}test_every_running_consumer_gets_every_message"),
    case("1.22", "a consumer begins with what was published before its start",
         Symbol("protocol:_mark", lambda mark: lambda reply: mark([None for _ in reply])),
         f"{BROADCAST}test_a_consumer_begins_with_what_is_published_after_its_start"),
    case("1.23", "a failure of a broadcast consumer is not counted",
         sends("HINCRBY", "counters", "args[1] = string.gsub(args[1], '^fail', 'succeed')", "tally"),
         f"{BROADCAST}test_what_does_not_succeed_is_logged_counted_and_not_tried_again[raises]"),
)  # fmt: skip
