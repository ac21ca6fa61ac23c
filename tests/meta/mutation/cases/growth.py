"""What grows or shrinks while it is in use: partitions of a topic."""

from typing import Any

from tests.meta.mutation.case import Symbol
from tests.meta.mutation.cases.common import case

LOOPS = "tests/contract/integration/test_idle_loops.py::"
GROWTH = "tests/contract/integration/test_growth_order.py::"


def stays_open(_: Any) -> Any:
    """A topic that gets partitions is not closed."""
    return lambda record: record


def as_addressed(original: Any) -> Any:
    """A call is sent to the partition that its messages were addressed to, whatever came since."""
    return lambda self, call, *rest: original(self, call._replace(partitions=0), *rest)


def ping(_: Any) -> Any:
    """Who is out stays in the way of a group that is removed."""

    def made(_keys: Any) -> Any:
        from rqretry.protocol.command import query

        return query(bytes, "PING")

    return made


def newer_wins(original: Any) -> Any:
    """What a client knows of a topic stays, also where the server has lost it."""

    def keep(self: Any, record: Any) -> Any:
        known = self.known.get(record.name)
        return known if known and known.version > record.version else original(self, record)

    return keep


CASES = (
    case("R30", "a lost message keeps a group for ever", Symbol("protocol:forget_heads", ping),
         f"{LOOPS}test_a_group_with_a_lost_message_is_removed"),
    case("R30", "a worker works on partitions that are gone",
         Symbol("CatalogStore.keep", newer_wins),
         f"{LOOPS}test_a_worker_leaves_the_partitions_that_a_topic_no_longer_has"),
    case("R29", "a topic takes messages while it gets partitions",
         Symbol("TopicRecord.close", stays_open),
         f"{GROWTH}test_a_publish_between_the_last_question_and_the_swap_waits_for_it"),
    case("R29", "a publish that learns of growth goes to the old partition",
         Symbol("Publishing.call", as_addressed),
         f"{GROWTH}test_a_producer_that_lives_through_growth_keeps_its_message_groups_together",
         f"{GROWTH}test_a_bulk_that_learns_of_growth_is_sent_to_the_new_partitions"),
)  # fmt: skip
