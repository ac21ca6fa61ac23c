"""The data pipeline, R124 to R126 and R143."""

from typing import Any

from tests.meta.mutation.case import Symbol
from tests.meta.mutation.cases.common import case

ROWS = "tests/edges/spark/test_rows.py::"
SIMULATE = "tests/edges/spark/test_simulate.py::"
REPORT = "tests/edges/spark/test_report.py::"
REDRIVE = "tests/edges/spark/test_redrive.py::"


def ends_the_job(_original: Any) -> Any:
    """What is rejected ends the job."""

    def rejected(_self: Any, _row: Any, error: Exception) -> None:
        raise error

    return rejected


def blind(original: Any) -> Any:
    """Nothing is looked up: whatever was listed is said to be dead."""

    def still_dead(client: Any, choice: Any, record: Any) -> int:
        original(client, choice, record)
        return int(choice.count)

    return still_dead


def by_chance_alone(original: Any) -> Any:
    """Every failure is chance."""

    def fit_kind(trials: Any) -> Any:
        found, seen = original(trials)
        return type(found)((), float((trials.kind >= 0).mean())), seen

    return fit_kind


def surely(original: Any) -> Any:
    """The first draw is taken for the truth, in every simulation."""

    def posterior(kind: Any, seen: Any, _size: int, rng: Any) -> Any:
        return original(kind, seen, 1, rng)

    return posterior


def without_links(original: Any) -> Any:
    """The page knows no dashboard."""
    return lambda tables, source, _dashboard=None: original(tables, source)


CASES = (
    case("R124", "an id with two bodies ends the job", Symbol("_Outlet._rejected", ends_the_job),
         f"{ROWS}test_an_id_with_two_bodies_is_put_aside_as_the_row_it_was"),
    case("R124", "times are put aside as text",
         Symbol("spark:restored", lambda _original: lambda value, _: value),
         f"{ROWS}test_an_id_with_two_bodies_is_put_aside_as_the_row_it_was"),
    case("R125", "what was sent before counts as dead", Symbol("still_dead", blind),
         f"{REDRIVE}test_a_run_that_is_killed_again_and_again_sends_none_twice"),
    case("R126", "every failure is chance", Symbol("fit_kind", by_chance_alone),
         f"{SIMULATE}test_every_source_of_failures_is_found_in_worlds_that_are_known",
         f"{SIMULATE}test_messages_whose_time_has_not_come_are_early_and_not_unlucky"),
    case("R126", "the estimates are taken for the truth", Symbol("posterior", surely),
         f"{SIMULATE}test_each_simulation_has_a_model_of_its_own_as_uncertain_as_it_is"),
    case("R143", "message ids of the page lead nowhere",
         Symbol("spark:page", without_links),
         f"{REPORT}test_the_page_answers_in_order_and_its_charts_lead_to_message_ids"),
)  # fmt: skip
