"""What a worker process counts: as many series as are bounded, whatever its handlers raise."""

from rqretry.observability.counters import MOST_REASONS, Figures


def test_the_reasons_of_a_group_are_bounded_and_the_rest_is_one() -> None:
    figures = Figures()
    for number in range(3 * MOST_REASONS):
        figures.count_failed("orders", "billing", f"Error{number}")
    figures.count_failed("orders", "shipping", "KeyError")

    total = Figures()
    for part in (figures, Figures.read(figures.plain())):
        total.add(part)

    assert len(total.failed) == MOST_REASONS + 2
    assert total.failed["orders", "billing", "Error0"] == 2
    assert total.failed["orders", "billing", "other"] == 4 * MOST_REASONS
    assert total.failed["orders", "shipping", "KeyError"] == 2
