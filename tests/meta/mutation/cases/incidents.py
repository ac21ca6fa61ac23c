"""What a team sees on a bad night: failures, deaths, and who did what."""

from typing import Any

from tests.meta.mutation.case import Symbol
from tests.meta.mutation.cases.common import always, case

LOGS = "tests/contract/production/test_logs.py::"
POISON = "tests/chaos/test_poison.py::"


def idle(_original: Any) -> Any:
    """Nothing was running, as far as anybody knows."""
    return lambda _data, _concurrency: []


CASES = (
    case(
        "R104",
        "failures that are folded are never counted in a line",
        Symbol("OutcomeReporter.finish", always(None)),
        "tests/edges/cli/test_first_hour.py::test_failed_attempts_are_logged_and_folded",
    ),
    case(
        "R104",
        "what died of an expired lease is not logged",
        Symbol("Maintenance.report_deaths", always(())),
        "tests/contract/testing/test_faults.py::"
        "test_a_message_that_died_of_an_expired_lease_is_a_warning_as_any_other",
    ),
    case(
        "R104",
        "a line about an attempt does not name its trace",
        Symbol("core:ids_of", always(None)),
        f"{LOGS}test_a_line_about_a_traced_attempt_has_its_trace_and_its_span",
    ),
    case(
        "R105",
        "what a dead process had leased beside the poison counts",
        Symbol("_give_back", always(iter(()))),
        f"{POISON}test_what_was_leased_beside_the_poison_is_given_back_uncounted",
    ),
    case(
        "R105",
        "nobody notes what is running",
        Symbol("worker:_slots", idle),
        "tests/unit/worker/test_lease_journal.py::"
        "test_what_a_process_runs_is_told_apart_from_what_it_has_leased_beside_it",
    ),
    case(
        "R106",
        "nobody hears of a blocked event loop",
        Symbol("Heartbeat._look_at_loop", always(None)),
        "tests/edges/cli/test_incidents.py::test_the_cause_of_what_handlers_do_is_in_the_output",
    ),
    case(
        "R38",
        "what handlers raise is shown as it is",
        Symbol("core:redacted", lambda _original: str),
        "tests/unit/core/test_redact.py::"
        "test_an_app_says_what_else_is_a_secret_in_records_and_logs",
    ),
)
