"""The README is run: its Python blocks as they stand, its commands by name."""

import asyncio
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from rqretry import App
from rqretry.testing import Lab
from rqretry.testing.embedded_redis import EmbeddedRedis
from rqretry.worker.worker import Worker
from tests.edges.cli.shell import Shell

README = Path(__file__).parents[3] / "README.md"
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
WRITTEN_URL = "redis://localhost:6379/0"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with EmbeddedRedis() as server:
        yield server.url


def blocks(language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(README.read_text()) if kind == language]


def run_block(text: str, url: str) -> types.ModuleType:
    text = text.replace("App()", f'App("{WRITTEN_URL}")')
    assert WRITTEN_URL in text
    module = types.ModuleType("shop")
    sys.modules["shop"] = module  # annotations are resolved in the module that holds them
    exec(compile(text.replace(WRITTEN_URL, url), str(README), "exec"), module.__dict__)
    return module


async def test_the_consumer_bills_what_is_paid_and_rejects_what_can_never_be_right(
    url: str,
) -> None:
    app: App = run_block(blocks("python")[0], url).app
    worker = Worker(app.settings, app.consumers)
    task = asyncio.get_running_loop().create_task(worker.run())
    started = asyncio.ensure_future(worker.started.wait())
    await asyncio.wait([task, started], return_when="FIRST_COMPLETED")
    await app.publish_many("orders", [{"amount": 12, "paid": True}, {"amount": 3}, {"amount": -1}])
    async with asyncio.timeout(10):
        while True:
            stats = await app.admin.stats("orders", "billing")
            if (stats.waiting, stats.dead, stats.ready, stats.inflight) == (1, 1, 0, 0):
                break
            await asyncio.sleep(0.01)
    (dead,) = await app.admin.dead_letters("billing")
    assert dead.error == "a negative amount will never be right"
    worker.stop()
    await task
    await app.aclose()


def test_the_task_is_sent_and_is_still_a_function(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    app: App = run_block(blocks("python")[1], url).app
    stats = app.client.admin.stats("send_email")
    assert (stats.backlog, stats.scheduled) == (1, 1)
    assert capsys.readouterr().out == "to here and now\n"
    app.client.close()


def test_the_test_of_the_readme_passes(url: str, lab: Lab) -> None:
    consumer, test = run_block(blocks("python")[0], url), blocks("python")[3]
    names = {"app": consumer.app}
    exec(compile(test, str(README), "exec"), names)
    (function,) = (value for name, value in names.items() if name.startswith("test_"))
    function(lab)


def test_publishing_and_the_simple_consumer_run_as_written(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run_block(blocks("python")[2], url)
    *received, stats = capsys.readouterr().out.splitlines()
    assert sorted(received) == ["{'amount': 12} 1", "{'amount': 5} 1"]
    assert re.fullmatch(r"0 0 0 0 0", stats)


def commands() -> list[str]:
    shell = "\n".join(blocks("sh"))
    found = re.findall(r"^rqretry ((?:dlq )?[a-z]+)", shell, re.MULTILINE)
    return sorted(set(found))


@pytest.mark.parametrize("command", commands())
def test_every_command_of_the_readme_exists(command: str) -> None:
    assert "Usage:" in Shell("redis://localhost").ok(*command.split(), "--help")


def test_the_readme_is_short_enough_to_be_read() -> None:
    assert len(README.read_text().splitlines()) <= 200
