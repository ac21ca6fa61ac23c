"""What holds on one server holds on a cluster: the same tests, on three primaries."""

from types import ModuleType

from tests.integration import test_outcomes, test_simple_consumer, test_topics_and_groups

# It looks at one server on a unix socket; test_waking.py has what it says, for a cluster.
_SINGLE = {"test_a_publish_wakes_a_waiting_receive"}


def _again(*modules: ModuleType) -> None:
    """Have the tests and the fixtures of these modules here too, with the lab of this folder."""
    for module in modules:
        names = {name for name in vars(module) if not name.startswith("_")} - _SINGLE
        globals().update({name: getattr(module, name) for name in names})


_again(test_outcomes, test_simple_consumer, test_topics_and_groups)
