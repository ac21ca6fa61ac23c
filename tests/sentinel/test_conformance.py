"""What holds on one server holds behind Sentinels: the same tests, with passwords on both."""

from types import ModuleType

from tests.integration import test_leases, test_topics_and_groups


def _again(*modules: ModuleType) -> None:
    """Have the tests and the fixtures of these modules here too, with the lab of this folder."""
    for module in modules:
        names = {name for name in vars(module) if not name.startswith("_")}
        globals().update({name: getattr(module, name) for name in names})


_again(test_leases, test_topics_and_groups)
