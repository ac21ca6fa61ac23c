"""A server that begins to evict while in use: publishers are refused, workers drain and warn."""

import asyncio
import logging
from collections.abc import Callable, Iterator

import pytest

from rqretry import PublishError, UnsafeServer
from rqretry.cli.exporter import Metrics
from rqretry.transport import node
from tests.contract.integration.harness import Lab
from tests.edges.cli.shell import Shell

POLICY = "maxmemory-policy"
Evict = Callable[[bool], None]


@pytest.fixture
def evict(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Evict]:
    """Switches eviction on and off; clients look each time."""
    monkeypatch.setattr(node, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(node, "LOOK_AGAIN_S", 0.0)

    def switch(on: bool) -> None:
        lab.redis.config_set(POLICY, "allkeys-lru" if on else "noeviction")

    yield switch
    switch(False)


def test_a_client_publishes_nothing_to_a_server_that_evicts(lab: Lab, evict: Evict) -> None:
    with lab.client() as client:
        client.publish("t", "before")
        evict(True)
        with pytest.raises(UnsafeServer, match=r"maxmemory-policy allkeys-lru.*nothing was stored"):
            client.publish("t", "lost", id="a")
        with pytest.raises(PublishError) as error:
            client.publish_many("t", range(1200))
        with pytest.raises(UnsafeServer), client.transaction("t") as tx:
            tx.publish("lost")
        assert client.admin.stats("t").topics[0].stored == 1
        assert (len(error.value.failed), error.value.ambiguous) == (1200, ())
        evict(False)
        client.publish("t", "after", id="a")
        assert client.admin.stats("t").topics[0].stored == 2


def test_what_is_stored_there_is_still_drained(lab: Lab, evict: Evict) -> None:
    client = lab.client()
    client.publish("t", "a")
    evict(True)
    consumer = client.simple_consumer("t", group="g", create_group=True)
    (message,) = consumer.receive(wait=1)
    consumer.ack(message)


async def test_a_worker_raises_the_alarm_and_goes_on(
    lab: Lab, evict: Evict, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rqretry.worker.registration.ROSTER_EVERY_S", 0.01)
    caplog.set_level(logging.INFO, "rqretry")
    app = lab.app()
    seen = asyncio.Event()

    @app.consumer("t", group="g")
    async def handle(body: str) -> None:
        seen.set()

    async with lab.working(app) as worker, asyncio.timeout(10):
        await app.publish("t", "a", delay=0.5)
        evict(True)
        while "maxmemory-policy allkeys-lru" not in str(worker.condition().fault):
            worker.changed.clear()
            await worker.changed.wait()
        with pytest.raises(UnsafeServer):
            await app.publish("t", "b")
        await seen.wait()
        evict(False)
        while worker.condition().fault:
            worker.changed.clear()
            await worker.changed.wait()
    lines = [record.getMessage() for record in caplog.records if "messages" in record.getMessage()]
    assert "throws messages away" in lines[0]
    assert lines[1:] == ["the server keeps all messages again"]


def test_the_exporter_says_so(lab: Lab, evict: Evict) -> None:
    metrics = Metrics(lab.client())
    assert 'rqretry_redis_evicts{namespace="test"} 0' in metrics.text()
    evict(True)
    assert 'rqretry_redis_evicts{namespace="test"} 1' in Metrics(lab.client()).text()


def test_status_says_so(lab: Lab, evict: Evict) -> None:
    lab.client().publish("t", "a")
    evict(True)
    shell = Shell(lab.url)
    assert "throws messages away" in shell.ok("status", "--namespace", "test")
    assert shell.json("status", "--namespace", "test")["eviction"].endswith("set it to noeviction")
    evict(False)
    assert "eviction" not in shell.json("status", "--namespace", "test")
