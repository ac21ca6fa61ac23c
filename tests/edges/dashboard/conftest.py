"""The dashboard in this process, on a private Redis."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import redis

from rqretry import AsyncClient, Client
from rqretry.dashboard.access import Rights
from rqretry.dashboard.site import make_site
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.contract.admin.bench import Bench

CANARY = "<script>alert('x')</script>"


@pytest.fixture(scope="session")
def running() -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture
def server(running: EmbeddedRedis) -> EmbeddedRedis:
    with redis.Redis(unix_socket_path=str(running.socket_path)) as connection:
        connection.flushall()
    return running


@pytest.fixture
def client(server: EmbeddedRedis) -> Iterator[Client]:
    with Client(server.url) as made:
        yield made


@pytest.fixture
def bench(client: Client, server: EmbeddedRedis) -> Iterator[Bench]:
    """Group `billing` of topic `orders`, and nobody who works."""
    with redis.Redis(unix_socket_path=str(server.socket_path)) as raw:
        made = Bench(client, raw, server.url)
        made.group("billing", "orders")
        yield made


@asynccontextmanager
async def browsing(url: str, *, operator: bool = False, **given: Any) -> AsyncIterator[Any]:
    """An HTTP client of a dashboard; errors of the server are answers."""
    rights = Rights(operator=operator, token=given.pop("token", None))
    async with AsyncClient(url) as ours:
        site = make_site(ours, rights, fresh_s=0.0, **given)
        transport = httpx.ASGITransport(site, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as browser:
            yield browser
