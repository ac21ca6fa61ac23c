"""Waking and leasing in one round trip: R135 and R136."""

import time
from typing import Any

from tests.meta.mutation.case import Constant, Symbol
from tests.meta.mutation.cases.common import always, case

WAKING = "tests/contract/integration/test_waking.py::"
CLOCK = "tests/unit/transport/test_session.py::"
FETCH = "tests/unit/worker/test_fetch.py::"


def from_the_answer(_: Any) -> Any:
    """A lease is trusted from its answer."""
    return lambda _self, _server_ms, _sent_at: time.monotonic()


CASES = (
    case("R135", "a lease is trusted from its answer", Symbol("ServerClock.ran_at", from_the_answer),
         f"{CLOCK}test_a_call_never_ran_later_than_it_did_by_what_is_known_of_it",
         f"{WAKING}test_a_lease_whose_answer_is_lost_or_too_late_costs_its_deadline"),
    case("R135", "the server's time is asked once", Symbol("ServerClock.fresh", always(True)),
         f"{FETCH}test_what_was_leased_by_a_time_that_was_put_forward_is_renewed_and_the_time_asked_again"
         "[OK]"),
    case("R136", "behind a wait for several places no lease is sent",
         Constant("worker:_TOGETHER", "1"),
         f"{WAKING}test_a_wake_up_and_its_leases_are_one_round_trip"),
)  # fmt: skip
