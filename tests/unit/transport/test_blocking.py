"""How long a command blocks."""

import pytest
import redis

from rqretry.testing.embedded_redis import EmbeddedRedis
from rqretry.transport.replies import block_seconds


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 0.0004, 0.001, 0.0015])
def test_the_shortest_wait_ends_on_every_server(server: EmbeddedRedis, seconds: float) -> None:
    path = str(server.socket_path)
    with redis.Redis(unix_socket_path=path, socket_timeout=20) as client:
        assert client.execute_command("BZPOPMIN", "nobody", block_seconds(seconds)) is None
