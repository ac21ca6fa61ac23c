"""What holds on one server holds on a cluster: the same tests, on three primaries."""

# ruff: noqa: F403, F405 - the tests of these modules are run here again, with the lab of this folder

from tests.integration.test_outcomes import *
from tests.integration.test_simple_consumer import *
from tests.integration.test_topics_and_groups import *

# It looks at one server on a unix socket; test_waking.py has what it says, for a cluster.
del test_a_publish_wakes_a_waiting_receive
