"""Order, and tags that instances disagree about, on a cluster: the tests of one server."""

from tests.contract.integration import test_ordered_holds, test_other_tags, test_unordered
from tests.support.again import again

globals().update(again(test_ordered_holds, test_other_tags, test_unordered))
