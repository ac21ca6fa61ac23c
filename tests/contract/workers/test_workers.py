"""The programs in workers/ do what their first lines say."""

import asyncio
import threading
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from rqretry import App
from rqretry.core.errors import InvalidReceiptHandle
from rqretry.core.parts import parts_of
from rqretry.supervision.app_loader import load_app
from tests.contract.integration.harness import Lab, counted
from workers import flaky_http, flights, long_with_renew, poison, simple_extend

ROOT = Path(__file__).parents[3]
Placed = Callable[[App], App]


@pytest.mark.parametrize("name", ["flights", "flaky_http", "poison", "long_with_renew"])
def test_rqretry_worker_finds_the_app_of_each_program(name: str) -> None:
    assert parts_of(load_app(f"workers.{name}:app", str(ROOT))).consumers


def test_the_programs_use_the_public_api_only() -> None:
    for path in (ROOT / "workers").glob("*.py"):
        imports = [line for line in path.read_text().splitlines() if "rqretry" in line.split()]
        found = [line for line in imports if line.startswith(("import", "from"))]
        assert found
        assert all(line.startswith("from rqretry import ") for line in found), path.name


async def test_a_claim_waits_for_its_arrival_and_one_without_arrival_is_dead(
    lab: Lab, placed: Placed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(flights, "BOOK", tmp_path / "book.sqlite")
    app = placed(flights.app)
    async with lab.working(app):
        await asyncio.to_thread(flights.main)
        stats = await counted(lab, "flights-claims", succeed=1, dead=1)

    assert stats.counters["fail"] >= 5 + 2  # five of AA1141, and UA1545 at 0 and 0.5 s
    (dead,) = lab.client().admin.dead_letters("flights-claims")
    assert (dead.body, dead.deliveries, dead.error) == ({"flight": "AA1141"}, 5, "no arrival yet")


async def test_a_call_is_repeated_until_the_server_answers(
    lab: Lab, placed: Placed, capsys: pytest.CaptureFixture[str]
) -> None:
    app = placed(flaky_http.app)
    server = ThreadingHTTPServer(("127.0.0.1", 0), flaky_http.Flaky)
    program = threading.Thread(target=flaky_http.main, args=(server,))
    program.start()
    try:
        async with lab.working(app):
            await counted(lab, "flaky-http", succeed=3, fail=6, lease=9)
    finally:
        server.shutdown()
        program.join()

    recorded = capsys.readouterr().out.splitlines()
    assert len(recorded) == 3
    assert all(line.endswith("answered at delivery 3") for line in recorded)


async def test_a_poison_message_is_dead_after_four_deliveries_and_a_hopeless_one_after_one(
    lab: Lab, placed: Placed, capsys: pytest.CaptureFixture[str]
) -> None:
    async with lab.working(placed(poison.app)):
        await asyncio.to_thread(poison.main)
        await counted(lab, "billing", succeed=1, dead=2, lease=6)

    dead = {record.id: record for record in lab.client().admin.dead_letters("billing")}
    assert dead["poison"].deliveries == 4
    assert dead["poison"].error == "ZeroDivisionError: division by zero"
    assert (dead["hopeless"].deliveries, dead["hopeless"].cause) == (1, "rejected")
    assert dead["hopeless"].error == "the order has no total"
    assert capsys.readouterr().out == "billed 2.5 per item\n"


async def test_a_handler_longer_than_its_lease_is_delivered_once(
    lab: Lab, placed: Placed, capsys: pytest.CaptureFixture[str]
) -> None:
    async with lab.working(placed(long_with_renew.app)):
        await asyncio.to_thread(long_with_renew.main)
        stats = await counted(lab, "long-with-renew", succeed=1, lease=1)

    assert "expire" not in stats.counters
    assert capsys.readouterr().out.splitlines() == [
        "annual report: delivery 1 begins",
        "annual report: delivery 1 is done",
    ]


def test_a_simple_consumer_keeps_its_message_by_extending_the_lease(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    simple_extend.main(lab.client())

    assert capsys.readouterr().out.count("attempt 1") == simple_extend.STEPS
    stats = lab.stats("thumbnails")
    assert (stats.counters["lease"], stats.counters["succeed"]) == (1, 1)
    assert "expire" not in stats.counters


def test_without_the_extension_the_lease_is_over_before_the_work_is(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = lab.client()
    client.publish("images", "sunset.png")
    monkeypatch.setattr("rqretry.client.SimpleConsumer.change_invisible_duration", lambda *_: None)

    with pytest.raises(InvalidReceiptHandle):
        simple_extend.work(client)

    consumer = client.simple_consumer("images", group="thumbnails")
    assert [message.attempt for message in consumer.receive(wait=5)] == [2]
