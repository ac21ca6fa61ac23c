"""Every outcome of a handler on a cluster: the tests of one server, by `make campaign`."""

import pytest

from tests.contract.integration import test_outcomes
from tests.support.again import again

pytestmark = pytest.mark.campaign

globals().update(again(test_outcomes))
