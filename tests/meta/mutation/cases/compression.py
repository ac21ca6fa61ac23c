"""Compressed and large bodies: R138 and R139."""

from dataclasses import replace
from typing import Any

from tests.meta.mutation.case import Symbol
from tests.meta.mutation.cases.common import case

UNIT = "tests/unit/core/test_compression.py::"
LARGE = "tests/contract/integration/test_large_bodies.py::"
TOPIC = "tests/contract/integration/test_compression.py::"


def unbounded(original: Any) -> Any:
    """A frame may hold any number of bytes."""
    return lambda packed, _most: original(packed, 2**40)


def left_out(_: Any) -> Any:
    """Nobody reads what the script leaves out."""

    def read(_keys: Any, leased: Any) -> Any:
        yield from ()
        return leased

    return read


def as_they_are(_: Any) -> Any:
    """Only bodies that are published alone and bare are compressed."""
    return lambda messages, _least: messages


def unsaid(original: Any) -> Any:
    """Publishers that run do not learn of it."""
    return lambda self: original(replace(self, compress_from=0))


CASES = (
    case("R138", "a bomb is unpacked", Symbol("decompress", unbounded),
         f"{UNIT}test_what_is_hostile_or_newer_is_refused_with_a_reason[bomb]"),
    case("R138", "only a bare body published alone is compressed",
         Symbol("protocol:compressed", as_they_are),
         f"{TOPIC}test_a_task_that_runs_again_is_the_same_whatever_the_topic_says_now"),
    case("R138", "a running publisher does not learn of it", Symbol("Route.encode", unsaid),
         f"{TOPIC}test_a_running_publisher_learns_of_it_with_its_next_call"),
    case("R139", "a large body is read by nobody", Symbol("with_large", left_out),
         f"{LARGE}test_workers_and_simple_consumers_get_bodies_of_4_mib_beside_small_ones"),
)  # fmt: skip
