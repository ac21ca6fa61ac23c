"""What holds up a message group, on a cluster: the tests of one server."""

from tests.contract.integration import test_ordered_holds
from tests.support.again import again

globals().update(again(test_ordered_holds))
