"""A server whose append-only file is the journal of a run."""

from collections.abc import Iterator

import pytest

from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.conftest import missing
from tests.model.checker.aof import CHECKED_SERVER
from tests.support.servers import available_servers


@pytest.fixture(scope="module")
def checked_server() -> Iterator[EmbeddedRedis]:
    """A Redis 7 that keeps a journal; its data lie beside its socket."""
    found = [server for server in available_servers() if server.major >= 7]
    if not found:
        missing("there is no Redis 7 here, whose append-only file can be read")
    with EmbeddedRedis(found[0].path, appendonly=True, extra=CHECKED_SERVER) as server:
        yield server
