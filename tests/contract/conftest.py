"""The server of a test process, where it matters little which one; some folders take every one."""

from collections.abc import Iterator

import pytest

from rqretry.testing.embedded_redis import EmbeddedRedis


@pytest.fixture(scope="session")
def redis_server() -> Iterator[EmbeddedRedis]:
    """The server of this test process."""
    with EmbeddedRedis() as server:
        yield server
