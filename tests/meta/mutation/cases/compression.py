"""Compressed and large bodies: R138, R139, R151 and R152."""

from dataclasses import replace
from typing import Any

from tests.meta.mutation.case import Symbol, answers, drops
from tests.meta.mutation.cases.common import case

UNIT = "tests/unit/core/test_compression.py::"
LARGE = "tests/contract/integration/test_large_bodies.py::"
PUBLISH = "tests/lua/test_large_publish.py::"
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


def through(_: Any) -> Any:
    """All bodies are arguments of the script."""
    return lambda _incoming, _bodies, messages: ((), [data for _, data in messages])


def alike(original: Any) -> Any:
    """All large bodies have one checksum."""

    def written(incoming: str, bodies: str, messages: Any) -> Any:
        ahead, taken = original(incoming, bodies, messages)
        same = tuple((*one[:3], "same") if one[1] == incoming else one for one in ahead)
        return same, [b"\0same" if data.startswith(b"\0") else data for data in taken]

    return written


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
    case("R151", "large bodies pass through the script", Symbol("write_ahead", through),
         f"{PUBLISH}test_a_large_body_does_not_pass_through_the_script_that_publishes_it"),
    case("R151", "a body stays whose call was refused", drops("HDEL", "bodies"),
         f"{PUBLISH}test_a_call_that_is_refused_leaves_no_body_behind"),
    case("R152", "what was left behind stays", drops("HDEL", "bodies", "sweep"),
         f"{PUBLISH}test_what_was_left_behind_is_no_message_and_is_deleted_and_counted"),
    case("R152", "a body that was left behind becomes another call's",
         Symbol("write_ahead", alike),
         f"{PUBLISH}test_a_body_that_was_left_behind_is_not_taken_for_that_of_another_call"),
    case("R152", "what was left behind is a message to a group that catches up",
         answers("HMGET", "incoming", "answer = {}", "backfill_check"),
         f"{PUBLISH}test_what_was_left_behind_is_no_message_and_is_deleted_and_counted"),
)  # fmt: skip
