"""What holds on one server holds behind Sentinels: the same tests, with passwords on both."""

from tests.integration import test_topics_and_groups
from tests.support.again import again

globals().update(again(test_topics_and_groups))
