"""What a team sees on a bad night: failures, deaths, and who did what."""

from tests.meta.mutation.case import Symbol
from tests.meta.mutation.cases.common import always, case

LOGS = "tests/contract/production/test_logs.py::"

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
)
