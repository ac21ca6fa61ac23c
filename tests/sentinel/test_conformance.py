"""What holds on one server holds behind Sentinels: the same tests, with passwords on both."""

# ruff: noqa: F403 - the tests of these modules are run here again, with the lab of this folder

from tests.integration.test_leases import *
from tests.integration.test_topics_and_groups import *
