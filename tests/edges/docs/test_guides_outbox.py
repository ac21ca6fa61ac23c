"""docs/guides/outbox.md: processes killed between the commit, the publish and the deletion."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rqretry import Client
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.edges.docs.examples import EXAMPLES, environment, example

DIES_AT = """
import builtins, os, runpy, signal, sys
import rqretry

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def publish_and_die(self, *given):
    publish(self, *given)
    die()

publish = rqretry.Client.publish_many
at, *sys.argv = sys.argv[1:]
match at:
    case "commit":  # the first that follows it is to print the order
        builtins.print = die
    case "publish":
        rqretry.Client.publish_many = die
    case "delete":
        rqretry.Client.publish_many = publish_and_die
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with EmbeddedRedis() as server:
        yield server.url


def killed(at: str, *command: str, folder: Path, url: str) -> None:
    """Run the program until it is killed there."""
    done = subprocess.run(
        [sys.executable, "-c", DIES_AT, at, str(EXAMPLES / "outbox.py"), *command],
        cwd=folder,
        env=environment(url),
        capture_output=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def test_whoever_dies_each_order_has_one_message(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with example("outbox") as outbox, Client(url) as client:
        killed("commit", "place", "tea", folder=tmp_path, url=url)
        db = outbox.connect()
        with pytest.raises(TypeError), db:  # rolled back: neither an order nor a row
            outbox.place(db, object())
        (order,) = [row[0] for row in db.execute("SELECT id FROM orders")]
        killed("publish", "relay", folder=tmp_path, url=url)
        assert client.admin.topics() == []
        killed("delete", "relay", folder=tmp_path, url=url)
        assert client.admin.stats("orders").backlog == 1
        assert len(db.execute("SELECT id FROM outbox").fetchall()) == 1

        assert outbox.relay(db, client) == 1
        assert outbox.relay(db, client) == 0
        consumer = client.simple_consumer("orders", group="g", create_group=True)
        bodies = [message.body for message in consumer.receive(wait=0)]
        assert bodies == [{"order": order, "item": "tea"}]
        db.close()


@pytest.mark.parametrize("given", [[], ["--help"], ["place"]])
@pytest.mark.parametrize("program", ["outbox.py", "rocketmq_client.py"])
def test_a_program_that_is_started_without_what_it_needs_says_how(
    program: str, given: list[str], tmp_path: Path
) -> None:
    command = [sys.executable, str(EXAMPLES / program), *given]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert f"python {program} " in done.stderr
