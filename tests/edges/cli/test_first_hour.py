"""What a new user meets in the first hour: declared topics, failures, and which server it is."""

import re
import signal
import textwrap
from pathlib import Path

import pytest

from rqretry import Client
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.conftest import program as server_program
from tests.edges.cli.conftest import Program
from tests.edges.cli.test_program import ended, wait_until
from tests.support.servers import free_port

SHOP = """
    import time
    from rqretry import App

    app = App({code})
    flights = app.topic("flights", partitions=2)

    @flights.consumer(group="claims", consume_timeout="300ms")
    def settle(message):
        if message.body == "slow":
            time.sleep(0.6)
        elif message.body != "good":
            raise KeyError(message.body)
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder with an app that declares two partitions."""
    return written(tmp_path, "")


def written(folder: Path, code: str) -> Path:
    """The app, with what its code names as its server."""
    (folder / "first_shop.py").write_text(textwrap.dedent(SHOP.format(code=code)))
    return folder


def worked(client: Client) -> bool:
    """Whether a worker of the group is alive."""
    return any(group.workers for group in client.admin.stats().groups)


def counter(client: Client, name: str) -> int:
    """How often something happened in the group."""
    (group,) = client.admin.stats().groups
    return group.counters.get(name, 0)


def test_a_worker_makes_topics_as_they_are_declared(
    program: Program, client: Client, shop: Path
) -> None:
    worker = program(
        "worker",
        "first_shop:app",
        "--app-dir",
        str(shop),
        "--processes",
        "2",
        "--log-format",
        "text",
    )
    assert worker.stderr is not None
    assert "INFO ready: 2 processes" in worker.stderr.readline()
    client.publish("flights", "good")
    wait_until(lambda: counter(client, "succeed") == 1)
    assert client.admin.stats("flights").topics[0].partitions == 2
    ended(worker, signal.SIGTERM)
    assert worker.returncode == 0


@pytest.mark.parametrize(
    ("has", "remedy"),
    [
        (1, "add the others with: rqretry topic set flights --partitions 2"),
        (3, "partitions are never removed, so declare partitions=3, or none"),
    ],
)
def test_a_worker_that_declares_something_else_ends_with_the_remedy(
    program: Program, client: Client, shop: Path, has: int, remedy: str
) -> None:
    client.admin.create_topic("flights", partitions=has)
    worker = program("worker", "first_shop:app", "--app-dir", str(shop))
    _, err = worker.communicate(timeout=30)
    assert worker.returncode == 2
    assert f"it exists with {has}; {remedy}" in err


def test_failed_attempts_are_logged_and_folded(
    program: Program, client: Client, shop: Path
) -> None:
    client.admin.create_topic("flights", partitions=2)
    worker = program("worker", "first_shop:app", "--app-dir", str(shop), "--log-format", "text")
    wait_until(lambda: worked(client))
    client.publish_many("flights", ["nope"] * 50)
    client.publish("flights", "slow")
    wait_until(lambda: counter(client, "fail") == 51)
    _, err = ended(worker, signal.SIGTERM)
    lines = [line for line in err.splitlines() if " failed, next in " in line]
    raised = [line for line in lines if "KeyError" in line]
    assert len(raised) == 1
    assert re.search(
        r"WARNING message \S+ of flights, group claims: attempt 1 of 17 failed, next in (9|10) s:"
        r" KeyError: 'nope' \(first_shop.py:13\)$",
        raised[0],
    )
    assert any("longer than consume_timeout, 0.3 s" in line for line in lines)
    folded = r"INFO flights/claims: 50 failed attempts in \d+ s, KeyError, e.g. message \S+$"
    assert len(re.findall(folded, err, re.MULTILINE)) == 1
    assert "Traceback" not in err


def test_the_banner_names_where_the_server_was_named(
    program: Program, client: Client, server: EmbeddedRedis, tmp_path: Path
) -> None:
    url = server.url

    def banner(code: str, *options: str) -> str:
        shop = written(tmp_path, code)
        worker = program("worker", "first_shop:app", "--app-dir", str(shop), *options)
        wait_until(lambda: worked(client))
        out, _ = ended(worker, signal.SIGTERM)
        wait_until(lambda: not worked(client))
        return out

    assert 'named by RQRETRY_REDIS_URL"' in banner("")
    assert 'named by the code"' in banner(repr(url))
    assert 'named by --url"' in banner('"redis://nowhere.example.org"', "--url", url)


def test_scripts_are_loaded_again_after_the_server_was_replaced_by_an_older_one() -> None:
    port = free_port()
    newer, older = server_program("redis-7"), server_program("redis-6.2")
    with EmbeddedRedis(newer.path, port=port) as first:
        client = Client(f"redis://127.0.0.1:{port}/0")
        client.publish("t", 1)
        client.publish_many("t", range(3))
        first.stop()
    with EmbeddedRedis(older.path, port=port), client:
        client.publish("t", 1)
        client.publish_many("t", range(3))
        consumer = client.simple_consumer("t", group="g", create_group=True)
        assert len(consumer.receive(wait=1)) == 4
