"""A server whose append-only file is the journal of a run."""

from collections.abc import Iterator

import pytest

from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.conftest import program
from tests.model.checker.aof import CHECKED_SERVER
from tests.support.servers import SERVERS


@pytest.fixture(scope="module", params=list(SERVERS))
def checked_server(request: pytest.FixtureRequest) -> Iterator[EmbeddedRedis]:
    """Each server, with a journal; its data lie beside its socket."""
    binary = program(request.param).path
    with EmbeddedRedis(binary, appendonly=True, extra=CHECKED_SERVER) as server:
        yield server
