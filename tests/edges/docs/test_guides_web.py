"""docs/guides/fastapi.md and flask.md: by the test clients, and served by uvicorn and gunicorn."""

import asyncio
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from fastapi import FastAPI

from rqretry import Client
from rqretry.core.parts import parts_of
from rqretry.testing import Lab
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.edges.docs.examples import EXAMPLES, environment, example, running, until
from tests.support.servers import free_port

TEA = {"item": "tea", "amount": 2}
NOWHERE = "redis://127.0.0.1:9"


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture(params=["fastapi_shop", "flask_shop"])
def shop(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    with example(request.param) as module:
        yield module


def ask(shop: ModuleType, key: UUID | str, body: Any) -> tuple[int, Any]:
    """Ask by the framework's test client; status and JSON."""
    if shop.__name__ == "flask_shop":
        answer = shop.web.test_client().put(f"/orders/{key}", json=body)
        return answer.status_code, answer.get_json(silent=True)
    reply = asyncio.run(ask_asgi(shop.web, f"/orders/{key}", body))
    return reply.status_code, reply.json()


async def ask_asgi(web: FastAPI, path: str, body: Any) -> httpx.Response:
    transport = httpx.ASGITransport(web)
    client = httpx.AsyncClient(transport=transport, base_url="http://testserver")
    async with web.router.lifespan_context(web), client:
        return await client.put(path, json=body)


def test_a_repeated_request_publishes_once_and_a_wrong_one_is_refused(
    shop: ModuleType, server: EmbeddedRedis
) -> None:
    shop.app.configure(server.url, shop.__name__.replace("_", "-"))
    key = uuid4()
    assert ask(shop, key, TEA) == (202, {"id": f"order-{key}", "duplicate": False})
    assert ask(shop, key, TEA) == (202, {"id": f"order-{key}", "duplicate": True})
    assert ask(shop, key, {**TEA, "amount": 3})[0] == 409
    assert ask(shop, uuid4(), {**TEA, "amount": "many"})[0] == 422
    assert ask(shop, "no-uuid", TEA)[0] in {404, 422}
    with Client(server.url, namespace=shop.__name__.replace("_", "-")) as client:
        assert client.admin.stats("orders").backlog == 1
    shop.app.client.close()


def test_without_redis_the_answer_is_503_within_the_timeout(
    shop: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.app.configure(NOWHERE)
    monkeypatch.setattr(parts_of(shop.app), "_patience_s", 0.1)
    status, answer = ask(shop, uuid4(), TEA)
    assert (status, "is unreachable" in answer["detail"]) == (503, True)
    shop.app.client.close()


async def test_a_request_publishes_into_the_lab_and_its_handler_runs_there(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    with example("fastapi_shop") as shop:
        lab.app(shop.app)
        reply = await ask_asgi(shop.web, f"/orders/{uuid4()}", TEA)
        assert reply.status_code == 202
        await lab.arun_until_idle()
    assert capsys.readouterr().out == "shipped 2 tea\n"


def put(port: int, key: UUID) -> tuple[int, str]:
    """A request over loopback: its status, and the id that was answered."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/orders/{key}",
        json.dumps(TEA).encode(),
        {"Content-Type": "application/json"},
        method="PUT",
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            return reply.status, json.load(reply)["id"]
    except urllib.error.HTTPError as error:
        with error:
            return error.code, ""
    except OSError:  # nobody listens yet
        return 0, ""


def requests(port: int, count: int) -> None:
    """Many at once; each is answered with its own id."""
    keys = [uuid4() for _ in range(count)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda key: put(port, key), keys))
    assert answers == [(202, f"order-{key}") for key in keys]


def test_uvicorn_serves_it_and_a_worker_beside_it_ships(
    server: EmbeddedRedis, tmp_path: Path
) -> None:
    port, env = free_port(), environment(server.url, RQRETRY_NAMESPACE="uvicorn")
    web, worker = tmp_path / "web.log", tmp_path / "worker.log"
    serve = ("-m", "uvicorn", "--port", str(port), "fastapi_shop:web")
    work = ("-m", "rqretry", "worker", "fastapi_shop:app", "--grace", "1s")
    with (
        running(*serve, folder=EXAMPLES, env=env, log=web),
        running(*work, folder=EXAMPLES, env=env, log=worker),
    ):
        until(lambda: put(port, uuid4())[0], web.read_text)
        requests(port, 30)
        until(lambda: worker.read_text().count("shipped 2 tea") == 31, worker.read_text)
    assert "Application shutdown complete" in web.read_text()


PRELOADED = """
from flask_shop import app, orders, web

orders.publish_sync({"item": "before the fork", "amount": 1})  # opens connections
"""


def test_gunicorn_serves_it_with_two_processes_also_where_connections_are_older_than_the_fork(
    server: EmbeddedRedis, tmp_path: Path
) -> None:
    (tmp_path / "preloaded.py").write_text(PRELOADED)
    port, env = free_port(), environment(server.url, RQRETRY_NAMESPACE="gunicorn")
    env["PYTHONPATH"] = f"{EXAMPLES}:{env['PYTHONPATH']}"
    log = tmp_path / "web.log"
    options = ("--workers", "2", "--threads", "4", "--bind", f"127.0.0.1:{port}", "--preload")
    logged = ("--access-logfile", "-", "--access-logformat", "served by %(p)s")
    serve = ("-m", "gunicorn", *options, *logged, "preloaded:web")
    with running(*serve, folder=tmp_path, env=env, log=log):
        until(lambda: put(port, uuid4())[0], log.read_text)
        requests(port, 100)
        with Client(server.url, namespace="gunicorn") as client:
            assert client.admin.stats("orders").backlog == 102
    served_by = re.findall(r"^served by <(\d+)>$", log.read_text(), re.MULTILINE)
    assert len(set(served_by)) == 2
