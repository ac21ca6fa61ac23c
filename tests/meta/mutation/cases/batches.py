"""Batch handlers: an outcome for each message, when a batch starts, and what ends it."""

import asyncio
from typing import Any

from tests.meta.mutation.case import Symbol
from tests.meta.mutation.cases.common import always, case

LAB = "tests/contract/testing/test_batches.py::"
OPTIONS = "tests/unit/consumer/test_options.py::"
SLOTS = "tests/unit/worker/test_batch_slots.py::"
CONSUMER = "tests/unit/worker/test_batch_attempt.py::"


def commits_the_missing(original: Any) -> Any:
    """What a mapping leaves out is taken for done."""

    def made(value: Any, ids: Any, read: Any) -> Any:
        answers = original(value, ids, read)
        if isinstance(value, dict):
            answers |= {id_: read(None) for id_ in ids if id_ not in value}
        return answers

    return made


def first_for_all(original: Any) -> Any:
    """The outcome of the first message is that of all."""

    def made(value: Any, ids: Any, read: Any) -> Any:
        answers = original(value, ids, read)
        return dict.fromkeys(ids, next(iter(answers.values())))

    return made


def several_at_once(_: Any) -> Any:
    """The number of the command line holds in ordered groups, too."""
    return lambda self, concurrency: concurrency or self.concurrency


def ends_with_one(original: Any) -> Any:
    """A batch is called off with the first message that is lost."""

    def made(self: Any, delivery: Any) -> None:
        original(self, delivery)
        if isinstance(delivery.task, asyncio.Task):
            delivery.task.cancel()

    return made


def leases_remainders(original: Any) -> Any:
    """Room is counted by messages: beside a batch that is not full, the rest of it."""
    return lambda self, running: max(0, original(self, running) - 1)


CASES = (
    case(
        "R76",
        "what a batch handler's mapping leaves out is committed",
        Symbol("core:read_batch", commits_the_missing),
        f"{LAB}test_what_a_mapping_does_not_name_is_tried_again_and_what_was_not_there_is_ignored",
    ),
    case(
        "R76",
        "one outcome of a mapping is taken for all",
        Symbol("core:read_batch", first_for_all),
        f"{LAB}test_one_outcome_is_that_of_all_and_a_mapping_that_of_each",
    ),
    case(
        "R77",
        "several batches of an ordered group run at once in a process",
        Symbol("ConsumerSpec.at_once", several_at_once),
        f"{OPTIONS}test_what_is_not_named_has_a_default",
    ),
    case(
        "R78",
        "a batch does not wait to be filled",
        Symbol("BatchSlots._still_waits", always(0.0)),
        f"{SLOTS}test_full_batches_start_at_once_and_what_is_left_waits",
    ),
    case(
        "R78",
        "a batch cannot be filled",
        Symbol("BatchSlots.room", leases_remainders),
        f"{SLOTS}test_room_is_for_whole_batches_and_a_batch_can_always_be_filled",
    ),
    case(
        "R78",
        "a batch is called off with the first of its messages that is lost",
        Symbol("RunningBatches._call_off", ends_with_one),
        f"{CONSUMER}test_a_lease_that_is_lost_ends_its_message_and_the_batch_goes_on",
    ),
)
