"""What grows or shrinks while it is in use: partitions of a topic."""

from typing import Any

from tests.meta.mutation.case import Constant, LuaLine, Symbol
from tests.meta.mutation.cases.common import always, case

IDLE = "tests/contract/integration/test_idle_costs.py::"
LOOPS = "tests/contract/integration/test_idle_loops.py::"
JOINS = "tests/contract/testing/test_promises.py::test_what_many_groups_cost_follows_their_number"
GROWTH = "tests/contract/integration/test_growth_order.py::"
REPLAYED = (
    "tests/contract/integration/test_growth_replay.py::"
    "test_what_was_consumed_before_growth_is_not_replayed_beside_what_is_published_now"
)


def stays_open(_: Any) -> Any:
    """A topic that gets partitions is not closed."""
    return lambda record: record


def undated(original: Any) -> Any:
    """Nobody knows when a topic got more partitions."""
    return lambda self, closed, partitions, _now_ms=0: original(self, closed, partitions)


def as_addressed(original: Any) -> Any:
    """A call is sent to the partition that its messages were addressed to, whatever came since."""
    return lambda self, call, *rest: original(self, call._replace(partitions=0), *rest)


def one_by_one(_: Any) -> Any:
    """Each operation ends before the next one begins."""

    def made(operations: Any) -> Any:
        results = []
        for operation in operations:
            results.append((yield from operation))  # noqa: PERF401 - it yields
        return results

    return made


def looks_first(original: Any) -> Any:
    """All that were not looked at for long come first."""

    async def made(self: Any, wants: Any) -> None:
        await self._look_at_late([place for _, place in self._pairs], woken=True)
        await original(self, wants)

    return made


def none_as_wanted(_: Any) -> Any:
    """Whatever a group has, it subscribes to each topic."""

    def made(_self: Any, _topics: Any, _group: Any) -> Any:
        yield from ()
        return set()

    return made


def everything(_: Any) -> Any:
    """Everything that there is may hold something."""

    def made(items: Any, _keys_of: Any, _at_once: int) -> Any:
        yield from ()
        return list(items)

    return made


def no_other_number(original: Any) -> Any:
    """A topic that is there with another number of partitions is an error."""

    def made(self: Any, name: str, partitions: int) -> Any:
        record = yield from original(self, name, partitions)
        if record.partitions != partitions:
            raise ValueError(f"partitions {partitions}: it exists with {record.partitions}")
        return record

    return made


CASES = (
    case("R30", "upkeep looks at all that exists", Symbol("maintenance:holding", everything),
         f"{IDLE}test_a_round_of_upkeep_costs_what_is_due_and_not_what_exists"),
    case("R30", "what is woken waits until others are looked at",
         Symbol("Fetcher._lease_woken", looks_first),
         f"{IDLE}test_what_was_woken_is_leased_before_others_are_looked_at"),
    case("R30", "a group joins its topics one by one",
         Symbol("protocol:side_by_side", one_by_one),
         Symbol("Subscriptions._copy_again", none_as_wanted),
         f"{IDLE}test_a_group_of_many_topics_joins_with_a_few_calls"),
    case("R30", "operations side by side have round trips of their own",
         Symbol("protocol:side_by_side", one_by_one), JOINS),
    case("R30", "what one group of a lab does wakes all of them", Symbol("tag_of", always("")), JOINS),
    case("R30", "wake-ups are taken one by one", Constant("worker:_MANY", "10**9"),
         f"{IDLE}test_many_that_are_woken_together_are_leased_from_together"),
    case("R30", "a wait that has ended gives its connection up",
         Constant("transport:MAX_IDLE_SPREAD", "0"),
         "tests/contract/cluster/test_idle.py::test_a_message_opens_no_connection_and_leaves_the_other_waits_alone"),
    case("R30", "a lost message keeps a group for ever", LuaLine("leave", "ARGV[3] = '0'"),
         f"{LOOPS}test_a_group_with_a_lost_message_is_removed"),
    case("R30", "a worker works on partitions that are gone",
         Symbol("worker:_differs", always(False)),
         f"{LOOPS}test_a_worker_leaves_the_partitions_that_a_topic_no_longer_has"),
    case("R29", "a topic takes messages while it gets partitions",
         Symbol("TopicRecord.close", stays_open),
         f"{GROWTH}test_a_publish_between_the_last_question_and_the_swap_waits_for_it"),
    case("R29", "a publish that learns of growth goes to the old partition",
         Symbol("Publishing.call", as_addressed),
         f"{GROWTH}test_a_producer_that_lives_through_growth_keeps_its_message_groups_together",
         f"{GROWTH}test_a_bulk_that_learns_of_growth_is_sent_to_the_new_partitions"),
    case("R133", "nobody knows when a topic got more partitions", Symbol("TopicRecord.open", undated),
         REPLAYED),
    case("R133", "a replay goes on while the topic grows", LuaLine("replay", "ARGV[7] = 2 ^ 53"),
         "tests/lua/test_replay.py::test_nothing_is_given_behind_a_newer_route"),
    case("R39", "a topic that came back with other partitions is not published to",
         Symbol("Topics._found_or_made", no_other_number),
         "tests/contract/integration/test_partition_growth.py::"
         "test_a_topic_that_came_back_with_other_partitions_is_published_to"),
)  # fmt: skip
