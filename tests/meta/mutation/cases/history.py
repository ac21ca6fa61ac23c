"""What the history says of handlers' times, R121, who misses a part, R122, and options, R123."""

import time
from typing import Any

from tests.meta.mutation.case import Symbol
from tests.meta.mutation.cases.common import always, case

LOSS = "tests/edges/spark/test_data_loss.py::"
TIMES = "tests/contract/integration/test_timing.py::test_queue_buffer_and_handler_are_told_apart"


def since_lease(_original: Any) -> Any:
    """The handler ran since the message was leased."""
    return property(lambda delivery: time.monotonic() - delivery.leased_at)


CASES = (
    case("R121", "nobody says when handlers ran", Symbol("encode_times", always(b"")), TIMES),
    case(
        "R121",
        "a failure took as long as its lease",
        Symbol("Delivery.ran_s", since_lease),
        TIMES,
    ),
    case(
        "R121",
        "how long a message was ready is not known",
        Symbol("_with_queue_waits", lambda _original: list),
        TIMES,
    ),
    case(
        "R122",
        "numbers of entries mean nothing",
        Symbol("Numbering.check", always(None)),
        f"{LOSS}test_entries_that_were_removed_by_hand_are_data_loss",
    ),
    case(
        "R122",
        "how many entries there should be is not known",
        Symbol("Numbering.ends", always(None)),
        f"{LOSS}test_entries_that_were_removed_by_hand_are_data_loss",
    ),
    case(
        "R122",
        "a new topic begins with what is kept",
        Symbol("check_trimmed", always(None)),
        f"{LOSS}test_a_new_topic_that_was_trimmed_before_its_first_read_is_data_loss",
    ),
    case(
        "R122",
        "a topic that was made anew is the same",
        Symbol("StreamReader._made_anew", always(set())),
        f"{LOSS}test_a_history_that_was_made_anew_is_data_loss",
    ),
    case(
        "R122",
        "nothing is compared with what was read",
        Symbol("check_range", always(None)),
        f"{LOSS}test_a_failover_to_a_replica_that_lacks_what_was_read_is_data_loss",
    ),
    case(
        "R123",
        "no batch waits for more events",
        Symbol("StreamReader._waits", always(False)),
        "tests/edges/spark/test_options.py::test_a_batch_waits_for_the_fewest_events_or_its_time",
    ),
)
