"""Simple consumers, and the metadata of groups."""

from typing import Any

from tests.meta.mutation.case import (
    Symbol,
    answers,
    drops,
    scores,
    sends,
    setting,
    writes_state,
)
from tests.meta.mutation.cases.common import (
    CHANGE,
    GROUPS,
    SIMPLE,
    always,
    case,
    changed_fields,
    command,
    decoded,
    limit,
)

OWN = "tests/contract/integration/test_simple_consumer.py::"
TOPICS = "tests/contract/integration/test_topics_and_groups.py::"
ADMIN = "tests/contract/admin/test_groups.py::"
MOVING = "tests/contract/admin/test_moving.py::"
DURATIONS = f"{SIMPLE}test_a_message_is_invisible_for_10_ms_to_12_hours"
GIVEN_BACK = f"{SIMPLE}test_a_change_to_0_makes_it_visible_at_once_and_counts_the_delivery"
FAIR = "tests/contract/integration/test_simple_fairness.py::"
EACH = f"{SIMPLE}test_every_delivery_counts_however_it_ends_and_its_record_has_each"
RELEASED = f"{SIMPLE}test_what_is_released_is_visible_at_once_and_uncounted"
EXPIRIES = f"{SIMPLE}test_every_expiry_makes_it_ready_at_once_and_the_last_one_dead"
AT_THE_DEADLINE = f"{SIMPLE}test_an_ack_is_taken_up_to_the_deadline_and_not_at_it"
COUNTS = f"{SIMPLE}test_a_change_counts_from_the_call_and_keeps_the_attempt"
START = f"{GROUPS}test_a_start_changes_the_limit_of_all_instances_at_once_and_says_who_and_when"
FIRST = f"{GROUPS}test_the_first_group_gets_what_was_before_it_and_a_later_one_what_comes"
PINS = f"{ADMIN}test_a_pinned_value_is_kept_by_a_start_that_names_another"


def deadlines(lua: str, *scripts: str) -> Any:
    """Deadlines that read otherwise."""
    each = f"for i = 1, #args do local score = answer[i] answer[i] = score and {lua} end"
    return answers("ZMSCORE", "inflight", each, *scripts)


def impatient(original: Any) -> Any:
    """A receive that does not wait."""

    def receive(self: Any, *args: Any, **named: Any) -> Any:
        return original(self, *args[:2], **{**named, "wait": 0})

    return receive


def without_word(original: Any) -> Any:
    """-1 is refused as any other number is."""

    def check(value: Any) -> Any:
        return original(-2 if value == -1 else value)

    return check


def late_change(original: Any) -> Any:
    """Nobody knows when a group was changed."""
    return lambda self, by, _at_ms, **fields: original(self, by, 0, **fields)


def only_first(record: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """A start after the first names no limit."""
    if record.version:
        fields.pop("max_retries", None)
    return fields


def from_start(start: str) -> Symbol:
    """A group that joins a topic begins somewhere else."""

    def make(original: Any) -> Any:
        def joined(*args: Any, **named: Any) -> Any:
            return original(*args, **{**named, "start": start})

        return joined

    return Symbol("catalog:with_topics", make)


def in_one_order(_original: Any) -> Any:
    """Whose turn it was is forgotten."""
    return lambda _self, _lane, places: sorted(places)


def by_the_turn(_original: Any) -> Any:
    """The places take turns by the number of the receive, and so does what is preferred."""

    def order(self: Any, _lane: str, places: Any) -> Any:
        listed = sorted(places)
        at = self.__dict__.get("turn", 0) % max(1, len(listed))
        return [*listed[at:], *listed[:at]]

    return order


def counted_turns(original: Any) -> Any:
    """The number of the receive."""

    def next_lane(self: Any) -> Any:
        self.turn = self.__dict__.get("turn", 0) + 1
        return original(self)

    return next_lane


IN_STEP = (
    Symbol("Turns.plan", always(())),
    Symbol("Turns.order", by_the_turn),
    Symbol("Turns.next_lane", counted_turns),
)
"""Where each receive takes all from one place: the same half of an even number of places is always
asked for new messages, the other one for retries."""


def all_or_nothing(original: Any) -> Any:
    """Receipts of which one that is not valid spoils all."""

    def sorted_out(self: Any, texts: Any) -> Any:
        known, refused = original(self, texts)
        return {} if refused else known, refused

    return sorted_out


CASES = (
    case("2.1", "33 messages are received at once", limit("MAX_RECEIVE", "33"),
         f"{SIMPLE}test_receive_takes_1_to_32_and_no_more"),
    case("2.1", "13 h of invisibility are allowed",
         limit("MAX_INVISIBLE_S", "13 * 3600"), DURATIONS),
    case("2.1", "1 ms of invisibility is allowed", limit("MIN_INVISIBLE_S", "0.001"), DURATIONS),
    case("2.1", "a receive waits for nothing",
         Symbol("SimpleOperations.receive", impatient),
         f"{OWN}test_a_publish_wakes_a_waiting_receive"),
    case("2.2", "a simple consumer's message waits by the ladder",
         setting("kind", "'push'", "expire"), EXPIRIES),
    case("2.3", "an ack at the deadline is taken",
         deadlines("score + 1", "succeed"), AT_THE_DEADLINE),
    case("2.3", "an ack after the deadline is taken while nobody else has the message",
         command("succeed", lambda _: {"strict": False}), AT_THE_DEADLINE),
    case("2.4", "a change counts from the old deadline",
         scores("inflight", "original('ZSCORE', key, member) + ARGV[3]", CHANGE),
         COUNTS),
    case("2.4", "the old receipt stays good after a change",
         writes_state("lease - 1, attempt, expiries, postpones", CHANGE), COUNTS),
    case("2.4", "a change counts an attempt",
         writes_state("lease, attempt + 1, expiries, postpones", CHANGE), COUNTS),
    case("2.4", "a lease that is over can be changed", deadlines("score + 1e9", CHANGE),
         f"{SIMPLE}test_a_lease_that_is_over_cannot_be_changed"),
    case("2.5", "a duration of 0 is a lease of a minute",
         command(CHANGE, lambda named: {"duration_ms": named["duration_ms"] or 60000}),
         GIVEN_BACK),
    case("2.5", "giving back counts nothing",
         writes_state("lease, attempt - 1, expiries, postpones", CHANGE), GIVEN_BACK),
    case("5.13", "a change to 0 is no delivery",
         writes_state("lease, attempt - 1, expiries, postpones", CHANGE), GIVEN_BACK),
    case("2.8", "what is given back after the last delivery is ready",
         setting("max_retries", "-1", CHANGE), EACH),
    case("2.8", "the record has only the deliveries that expired",
         drops("HSET", "failures", CHANGE), EACH),
    case("2.9", "a release counts an attempt",
         writes_state("lease, attempt + 1, expiries, postpones", "release"), RELEASED),
    case("2.9", "a message can be released for ever",
         command("release", lambda _: {"max_postpones": 1000}), RELEASED),
    case("2.9", "a release after the deadline is taken",
         deadlines("score + 1e9", "release"), RELEASED),
    case("2.11", "a receive says nothing of a pause",
         Symbol("SimpleOperations._note_pause", always(None)),
         "tests/contract/integration/test_lost_answers.py::"
         "test_a_receive_says_that_the_group_is_paused"),
    case("R44", "new messages always go first", Symbol("Turns.next_lane", always("ready")),
         f"{FAIR}test_due_retries_are_seen_behind_a_backlog_of_new_messages"),
    case("R44", "the places of a simple consumer keep one order",
         Symbol("Turns.order", in_one_order),
         f"{FAIR}test_each_source_of_a_lane_gets_as_many_turns",
         f"{FAIR}test_a_consumer_that_is_made_anew_begins_anywhere"),
    case("R44", "one preference is shared by all places", *IN_STEP,
         f"{FAIR}test_due_retries_are_seen_behind_a_backlog_of_new_messages",
         "tests/model/test_simple_consumers.py::"
         "test_what_waits_behind_a_backlog_is_seen_in_a_bounded_number_of_receives"),
    case("2.10", "an ack stops at the first handle that is not valid",
         Symbol("SimpleSettling._sort_out", all_or_nothing),
         "tests/contract/integration/test_giving_back.py::"
         "test_an_ack_commits_every_valid_handle_and_names_each_of_the_others"),
    case("2.6", "a simple consumer's message never dies",
         setting("max_retries", "-1", "expire"), EXPIRIES),
    case("2.6", "nobody sees to leases that are over",
         decoded("lease", lambda leased: leased._replace(next_deadline_ms=None)),
         f"{OWN}test_a_waiting_receive_sees_to_the_last_delivery_of_another_one"),
    case("2.6", "what a simple group has in flight does not expire",
         sends("ZRANGEBYSCORE", "inflight", "return {}", "expire"),
         f"{OWN}test_a_worker_of_another_group_sees_to_it_where_no_consumer_is_left"),
    case("2.7", "a group can be push and simple", Symbol("catalog:check_kind", always(None)),
         f"{TOPICS}test_a_group_is_push_or_simple_and_the_error_names_both"),
    case("3.1", "a partition keeps the first settings that it got",
         sends("HSET", "config", "if original('HEXISTS', key, 'version') == 1 then return 0 end",
               "configure"),
         f"{GROUPS}test_two_instances_share_one_truth"),
    case("3.2", "15 retries are the default", limit("DEFAULT_MAX_RETRIES", "15"),
         f"{GROUPS}test_16_retries_are_the_default_and_0_is_one_delivery"),
    case("3.2", "-1 is refused without the word to use",
         Symbol("core:check_max_retries", without_word),
         f"{GROUPS}test_minus_one_is_refused_wherever_a_limit_is_named"),
    case("3.3", "only the first start sets anything", changed_fields(only_first), START),
    case("3.3", "nobody knows when a group was changed",
         Symbol("GroupRecord.changed", late_change), START),
    case("3.4", "a start that names nothing sets the default",
         changed_fields(lambda _, fields: {"max_retries": 16, **fields}),
         f"{GROUPS}test_a_start_that_names_nothing_changes_nothing"),
    case("3.5", "a pin protects nothing", Symbol("catalog:against_pins", always({})), PINS),
    case("3.6", "a limit below the count is never reached",
         setting("max_retries", "value == '1' and '-1' or value", "fail"),
         f"{GROUPS}test_a_limit_lowered_below_the_count_lets_what_waits_be_delivered_once"),
    case("3.7", "a paused group gets messages", setting("paused", "'0'", "lease"),
         f"{GROUPS}test_a_pause_lets_running_handlers_finish_and_stops_the_rest"),
    case("3.7", "nobody is woken when a group is resumed", drops("ZADD", "wake", "configure"),
         f"{ADMIN}test_resuming_wakes_a_consumer_that_waits"),
    case("3.8", "what was published before any group is for nobody",
         sends("LLEN", "backlog", "return 0", "subscribe"), FIRST),
    case("3.9", "a later group gets what is stored", from_start("earliest"), FIRST),
    case("3.10", "start earliest is no different", from_start("latest"),
         f"{MOVING}test_a_later_group_starts_with_what_is_stored_on_request"),
    case("3.10", "what is stored is owed to a later group and never given",
         drops("LPUSH", "ready", "catch_up"),
         f"{MOVING}test_a_later_group_starts_with_what_is_stored_on_request"),
)  # fmt: skip
