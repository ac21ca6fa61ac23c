"""Sentinels, and what replicas confirm, on the servers that the rest of the folder leaves out.

Failing over is tested on all of them (test_failover.py).
"""

import pytest

from tests.contract.sentinel import test_durability
from tests.support.again import again

pytestmark = pytest.mark.parametrize("fleet", ["valkey-8", "redis-6.2"], indirect=True)

_MOST = (
    "test_a_replica_that_has_it_is_reported_on_the_id",
    "test_the_same_with_asyncio",
    "test_what_no_replica_confirms_is_stored_and_says_so",
    "unresponsive",
)
globals().update(again(test_durability, only=_MOST))
