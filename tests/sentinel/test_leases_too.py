"""The life of a lease behind Sentinels: the tests of one server, by `make campaign`."""

import pytest

from tests.integration import test_leases
from tests.support.again import again

pytestmark = pytest.mark.campaign

globals().update(again(test_leases))
