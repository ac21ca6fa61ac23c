"""What handlers, callbacks and operators do wrong, and what it may not harm."""

from typing import Any

from tests.meta.mutation.case import Constant, Symbol
from tests.meta.mutation.cases.common import always, case

HARMFUL = "tests/contract/integration/test_harmful_messages.py::"
HOOKS = "tests/contract/surface/test_hooks.py::"
PROCESSES = "tests/contract/surface/test_processes.py::"
REDRIVE = "tests/contract/admin/test_redrive.py::"


def in_the_same_task(_: Any) -> Any:
    """Callbacks run in the task of whoever emits the event."""

    async def emit(self: Any, event: Any) -> None:
        for callback in self._callbacks[event.name]:
            answer = callback(event)
            if answer is not None:
                await answer

    return emit


def once(original: Any) -> Any:
    """Whoever comes behind an interrupted replay completes that alone."""

    def replay(self: Any, name: str, since_ms: int) -> Any:
        given, _ = yield from self._replay(name, since_ms)
        return given

    return replay


def unchecked(_: Any) -> Any:
    """An operation that looks at nothing."""

    def nothing(*_given: Any, **_options: Any) -> Any:
        yield from ()

    return nothing


CASES = (
    case(
        "R109",
        "a handler that cancels its task ends its slot",
        Symbol("Consumer._keep_slot", always(None)),
        f"{HARMFUL}test_what_a_handler_does_to_its_task_fails_its_own_message",
    ),
    case(
        "R109",
        "a callback that exits ends its worker",
        Symbol("Hooks.emit", in_the_same_task),
        f"{HOOKS}test_a_callback_that_exits_or_is_cancelled_ends_nothing",
    ),
    case(
        "R109",
        "events for a callback that hangs are kept for ever",
        Constant("MOST_POSTED", "10**9"),
        f"{HOOKS}test_events_that_wait_for_a_callback_are_bounded",
    ),
    case(
        "R110",
        "a worker sets what one consumer names before it looks at the next one",
        Symbol("check_specs", unchecked),
        "tests/contract/integration/test_group_settings.py::"
        "test_a_worker_that_is_refused_for_one_consumer_has_set_nothing_for_another",
    ),
    case(
        "R111",
        "a forked copy of a handler's process answers as its original does",
        Symbol("_end_copy", always(None)),
        f"{PROCESSES}test_a_copy_that_a_handler_forked_does_not_answer_for_the_next_message",
    ),
    case(
        "R119",
        "what is scheduled is looked for in vain without a word",
        Symbol("_refuse_scheduled", unchecked),
        "tests/contract/admin/test_by_hand.py::test_what_is_scheduled_is_recalled_and_nothing_else",
    ),
    case(
        "R110",
        "a rate may go on for ever",
        Constant("core:MAX_DELAY_MS", "10**18"),
        f"{REDRIVE}test_a_rate_that_goes_on_for_too_long_is_refused_before_anything_is_sent",
    ),
    case(
        "R110",
        "an empty condition selects all",
        Symbol("DeadLetterFilter.__post_init__", always(None)),
        f"{REDRIVE}test_a_condition_that_is_empty_or_of_another_kind_selects_nothing",
    ),
    case(
        "R47",
        "a replay behind an interrupted one is forgotten",
        Symbol("Backfill.replay", once),
        "tests/contract/admin/test_replay.py::"
        "test_a_replay_behind_an_interrupted_one_gives_both_what_they_are_about",
    ),
)
