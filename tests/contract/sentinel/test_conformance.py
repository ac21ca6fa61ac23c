"""What holds on one server holds behind Sentinels, with passwords on both; by `make campaign`."""

import pytest

from tests.contract.integration import test_leases, test_topics_and_groups
from tests.support.again import again

pytestmark = pytest.mark.campaign

globals().update(again(test_leases, test_topics_and_groups))
