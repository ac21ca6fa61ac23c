"""The rest of the folder runs on one server; what depends on it most runs on the others, too."""

import pytest

from tests.contract.cluster import test_idle, test_moving, test_waking
from tests.support.again import again

pytestmark = pytest.mark.parametrize("cluster", ["valkey-8", "redis-6.2"], indirect=True)

_MOST = (
    "test_a_partition_moves_to_another_primary_while_it_is_in_use",
    "test_dead_letters_of_all_nodes_are_listed_redriven_and_committed",
    "test_a_worker_of_one_place_follows_it_to_another_primary",
    "test_a_publish_into_any_partition_wakes_an_idle_worker",
    "test_a_publish_into_any_partition_wakes_a_simple_consumer",
)
globals().update(again(test_idle, test_moving, test_waking, only=_MOST))
