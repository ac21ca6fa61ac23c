"""What is kept of consumed messages, and delivered again."""

from typing import Any

from tests.meta.mutation.case import LuaCall, Symbol, answers, drops, writes_state
from tests.meta.mutation.cases.common import always, case

IN_ORDER = "tests/lua/test_ordered.py::"
REPLAY = "tests/lua/test_replay.py::"
BROADCAST = "tests/contract/integration/test_broadcast.py::"
KEPT = (
    "tests/model/test_kept_messages.py::"
    "test_a_reset_delivers_exactly_once_more_what_was_consumed_since_and_is_kept"
)
NEVER = "local i = at(args, 'keep_ms') if i then answer[i] = '0' end"
ALWAYS = "local i = at(args, 'keep_ms') if i then answer[i] = '3600000' end"


def as_read(original: Any) -> Any:
    """A consumer is done with what it has read."""

    def made(self: Any) -> Any:
        self.done = self.mark
        return original(self)

    return made


def looks_once(original: Any) -> Any:
    """A group that begins in the past gets what is kept before what is stored, and then no more."""
    seen = set()

    def from_kept(self: Any, keys: Any, begins_ms: int) -> Any:
        again = keys.consumed in seen
        seen.add(keys.consumed)
        return 0 if again else (yield from original(self, keys, begins_ms))

    return from_kept


def from_the_beginning(original: Any) -> Any:
    """A group goes back as far as it can."""
    return lambda self, name, _since_ms: original(self, name, 0)


CASES = (
    case("R47", "a replay gives what was consumed before its time",
         Symbol("Backfill.replay", from_the_beginning), KEPT),
    case("R47", "what is consumed while a group catches up is not for it",
         Symbol("Backfill._from_kept", looks_once),
         "tests/contract/admin/test_replay.py::"
         "test_a_later_group_gets_what_is_consumed_while_it_catches_up"),
    case("R47", "everything is kept", LuaCall("HMGET", "meta", ("succeed",), answer=ALWAYS),
         f"{REPLAY}test_by_default_nothing_is_kept"),
    case("R47", "a replay uses the numbers of first leases",
         writes_state("1, attempt, expiries, postpones", "replay"),
         f"{REPLAY}test_what_is_done_is_kept_and_delivered_again_as_new"),
    case("R47", "a replay leaves what it gave", drops("ZREM", "consumed", "replay"),
         f"{REPLAY}test_each_group_replays_what_it_did_itself"),
    case("R47", "a replay forgets message groups",
         answers("HMGET", "message_groups", "for i = 1, #args do answer[i] = false end", "replay"),
         f"{REPLAY}test_order_in_a_message_group_is_kept_also_before_what_is_unfinished"),
    case("R47", "nobody knows the number that a redrive gave to a message",
         drops("HSET", "message_groups", "redrive"),
         f"{REPLAY}test_a_redriven_message_leaves_the_order_behind_those_that_were_replayed"),
    case("R47", "what is purged as blocked keeps the number that a redrive gave to it",
         drops("HSET", "message_groups", "purge_blocked"),
         f"{IN_ORDER}test_a_redriven_message_that_is_cleared_is_again_where_it_was_published"),
    case("R47", "what is kept stays for ever",
         answers("ZRANGEBYSCORE", "kept", "answer = {}", "sweep"),
         f"{REPLAY}test_sweep_forgets_what_is_kept_by_time"),
    case("R47", "any number of bytes is kept", answers("HGET", "meta", "answer = '0'", "sweep"),
         f"{REPLAY}test_sweep_forgets_the_oldest_where_they_are_too_many_bytes"),
    case("R48", "nobody keeps where a consumer is", Symbol("Position.to_keep", always(())),
         f"{BROADCAST}test_a_consumer_with_a_name_goes_on_where_it_was"),
    case("R48", "what was read is taken for done", Symbol("Position.to_keep", as_read),
         f"{BROADCAST}test_what_a_named_consumer_has_not_finished_comes_again"),
    case("R48", "what was cast is kept for ten minutes whatever the topic says",
         LuaCall("HMGET", "meta", ("publish_with_options", "sweep"), answer=NEVER),
         "tests/lua/test_broadcast.py::test_a_topic_that_keeps_what_was_consumed_keeps_what_was_cast_as_long"),
)  # fmt: skip
