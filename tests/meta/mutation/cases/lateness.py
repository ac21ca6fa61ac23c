"""What traces and operators are told of waiting, and of processes that leave something undone."""

import re
from typing import Any

from tests.meta.mutation.case import Symbol
from tests.meta.mutation.cases.common import always, case

LATENESS = "tests/edges/otel/test_lateness.py::"
FINDINGS = (
    "tests/edges/cli/test_process_findings.py::"
    "test_what_no_process_moves_and_who_was_left_behind_is_named"
)


def at_once(_original: Any) -> Any:
    """A delayed message is due when it is published."""
    return lambda _delay_ms, _now_ms: None


CASES = (
    case(
        "R116",
        "the due time of a delayed message is that of its publish",
        Symbol("producer:_due", at_once),
        f"{LATENESS}test_each_attempt_says_when_it_was_due_and_where_it_waited",
    ),
    case(
        "R116",
        "nobody asks how a killed process ended",
        Symbol("Fetcher._explained", lambda _original: _as_it_is),
        f"{LATENESS}test_the_attempt_before_says_how_it_ended",
    ),
    case(
        "R116",
        "only the process that reported a failure knows when its message is due",
        Symbol("protocol:_undated", lambda _original: _without_due_time),
        f"{LATENESS}test_the_attempt_before_says_how_it_ended",
    ),
    case(
        "R116",
        "what is below a failed attempt is forgotten",
        Symbol("KeepFailures._hold", always(None)),
        f"{LATENESS}test_a_kept_failure_has_its_publish_and_what_its_handler_did",
    ),
    case(
        "R116",
        "a place does not note when it gave nothing",
        Symbol("LeasedPlace.refused", always(None)),
        "tests/unit/core/test_waits.py::test_a_place_notes_from_when_to_when_it_gave_nothing",
    ),
    case(
        "R117",
        "workers of all versions are taken for one",
        Symbol("other_version", always(None)),
        FINDINGS,
    ),
)


def _without_due_time(_state: bytes, line: bytes) -> bytes:
    return re.sub(rb"\+\d+ ", b" ", line, count=1)


async def _as_it_is(_self: Any, _place: Any, leased: Any) -> Any:
    return leased
