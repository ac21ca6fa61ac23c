"""What holds on one server holds on a cluster: the same tests, on three primaries."""

from tests.contract.integration import (
    test_dead_groups,
    test_giving_back,
    test_simple_consumer,
    test_simple_fairness,
    test_topics_and_groups,
    test_what_callers_get_wrong,
)
from tests.support.again import again

# It looks at one server on a unix socket; test_waking.py has what it says, for a cluster.
_SINGLE = ("test_a_publish_wakes_a_waiting_receive",)

globals().update(
    again(
        test_giving_back,
        test_simple_fairness,
        test_simple_consumer,
        test_topics_and_groups,
        test_dead_groups,
        test_what_callers_get_wrong,
        without=_SINGLE,
    )
)
