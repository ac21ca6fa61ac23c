"""What is bounded: how long things are kept, how many there may be, what one call may take."""

from typing import Any

from tests.meta.mutation.case import Symbol, drops
from tests.meta.mutation.cases.common import always, case

RETENTION = "tests/contract/integration/test_retention.py::"
SWEEP = "tests/lua/test_sweep.py::"


def none_there(original: Any) -> Any:
    """Simple consumers leave it to others to forget."""

    def made(self: Any, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        self._sweeps.next_at = float("inf")

    return made


CASES = (
    case("R33", "one call each half minute forgets ids", Symbol("Sweeps._wait_s", always(30.0)),
         f"{RETENTION}test_a_worker_forgets_ids_as_fast_as_they_came",
         f"{RETENTION}test_a_round_of_the_reaper_forgets_what_is_over"),
    case("R33", "simple consumers forget nothing", Symbol("SimpleOperations.__init__", none_there),
         f"{RETENTION}test_a_group_of_simple_consumers_forgets_ids_and_applies_its_retention"),
    case("R33", "a decided transaction is kept for ever", drops("ZREM", "closed", "sweep"),
         f"{SWEEP}test_sweep_forgets_a_transaction_ten_minutes_after_its_end"),
)  # fmt: skip
